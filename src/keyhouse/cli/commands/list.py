"""`keyhouse list`, `scan` and `count`: the rows of a space, by prefix and type."""

import asyncio
import sys
from typing import Annotated

import typer

from keyhouse.cli.options import Json, JsonLines, Query, Selection, examples, spread
from keyhouse.cli.output import show_json


@examples(
    "keyhouse list rosey --space trivia --store sqlite:bot.db",
    "keyhouse list audiobooks b: --space main --type book --limit 20",
    "keyhouse list rosey --space trivia --service nats://127.0.0.1:4222",
)
@spread
def list_(query: Query, json: JsonLines = False) -> None:
    """List the keys of a space, in order.

    All keys, or those with a prefix. In a pipe, one key per line; a terminal also shows the type,
    revision and expiry.
    """
    asyncio.run(_list(query, json))


async def _list(query: Query, json: bool) -> None:
    from keyhouse.cli.access import open_access, select_space
    from keyhouse.cli.rows import Listing

    columns = ("key", "what", "revision", "expires") if sys.stdout.isatty() else ("key",)
    target = select_space(query)
    async with open_access(query.system, target, query) as access:
        with Listing(columns, json=json, space=target.space) as listing:
            async for row in access.rows(query, keys_only=True):
                listing.add(row)


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
        with Listing(("key", "value"), json=json, space=target.space) as listing:
            async for row in access.rows(query, resolve=resolve):
                listing.add(row)


@examples(
    "keyhouse count rosey --space trivia --store sqlite:bot.db",
    "keyhouse count audiobooks --type book --space main",
)
@spread
def count(selection: Selection, json: Json = False) -> None:
    """Count the rows of a space. Reads every key."""
    space, rows = asyncio.run(_count(selection))
    if json:
        show_json(
            {"space": space, "prefix": selection.prefix, "type": selection.type, "rows": rows}
        )
    else:
        print(rows)


async def _count(selection: Selection) -> tuple[str, int]:
    from keyhouse.cli.access import open_access, select_space

    target = select_space(selection)
    async with open_access(selection.system, target, selection) as access:
        return target.space, await access.count(selection)
