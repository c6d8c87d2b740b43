"""`keyhouse scan`: list keys with their values, in order."""

import asyncio
from typing import Annotated

import typer

from keyhouse.cli.options import JsonLines, Query, examples, renamed, spread


@renamed("--only", "--type")
@examples(
    "keyhouse scan rosey game_ --space trivia --store sqlite:bot.db",
    "keyhouse scan audiobooks idx:book:tag:fantasy: --resolve --space main",
    "keyhouse scan rosey --space trivia --json | jq .value",
)
@spread
def scan(
    query: Query,
    resolve: Annotated[
        bool,
        typer.Option(
            "--resolve", help="Show the records of each derived row instead, in its order."
        ),
    ] = False,
    json: JsonLines = False,
) -> None:
    """List the keys of a space with their values, in order.

    All keys, or those with a prefix; without private members. In a pipe, key and value are
    separated by a tab; a terminal shows the start of long values.
    """
    asyncio.run(_scan(query, resolve, json))


async def _scan(query: Query, resolve: bool, json: bool) -> None:
    from keyhouse.cli.access import open_access, select_space
    from keyhouse.cli.rows import Listing

    target = select_space(query)
    async with open_access(query.system, target, query) as access:
        with Listing(("key", "value"), json=json) as listing:
            async for row in access.rows(query, resolve=resolve):
                listing.add(row)
