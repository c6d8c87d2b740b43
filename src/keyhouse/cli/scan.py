"""`keyhouse scan`: keys with their values, in order."""

import asyncio
from typing import Annotated

import typer

from keyhouse.cli.options import JsonLines, Query, examples, spread


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
            "--resolve", help="Of a derived row, show the records that it leads to, in its order."
        ),
    ] = False,
    json: JsonLines = False,
) -> None:
    """Show the keys of a space with their values, in order.

    All of them, or those that start with a text; without private members. A pipe gets key and value with a tab
    between them; a terminal is shown the start of long values.
    """
    asyncio.run(_scan(query, resolve, json))


async def _scan(query: Query, resolve: bool, json: bool) -> None:
    from keyhouse.cli.access import reached, selected
    from keyhouse.cli.listing import Listing

    place = selected(query)
    async with reached(query.system, place, query) as access:
        with Listing(("key", "value"), json=json) as listing:
            async for row in access.rows(query, resolve=resolve):
                listing.add(row)
