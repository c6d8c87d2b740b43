"""`keyhouse list`, `scan` and `count`: the rows of a space, by prefix and type."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from keyhouse.cli.options import (
    After,
    AnyStore,
    Json,
    JsonLines,
    Limit,
    Location,
    Prefix,
    Reverse,
    RowType,
    Selection,
    SpaceName,
    SystemName,
    Token,
    examples,
)
from keyhouse.cli.output import show


@examples(
    "keyhouse list rosey --space trivia --store sqlite:bot.db",
    "keyhouse list audiobooks b: --space main --type book --limit 20",
    "keyhouse list rosey --space trivia --store nats://127.0.0.1:4222",
)
def list_(
    system: SystemName,
    prefix: Prefix = "",
    row_type: RowType = None,
    limit: Limit = None,
    after: After = None,
    reverse: Reverse = False,
    space: SpaceName = None,
    store: AnyStore = None,
    token: Token = None,
    json: JsonLines = False,
) -> None:
    """List the keys of a space, in order.

    All keys, or those with a prefix. In a pipe, one key per line; a terminal also shows the type,
    revision and expiry.
    """
    selection = Selection(prefix=prefix, type=row_type, limit=limit, after=after, reverse=reverse)
    columns = ("key", "what", "revision", "expires") if sys.stdout.isatty() else ("key",)
    asyncio.run(_show_rows(system, selection, Location(space, store, token), columns, json=json))


@examples(
    "keyhouse scan rosey game_ --space trivia --store sqlite:bot.db",
    "keyhouse scan audiobooks idx:book:tag:fantasy: --resolve --space main",
    "keyhouse scan rosey --space trivia --json | jq .value",
)
def scan(
    system: SystemName,
    prefix: Prefix = "",
    row_type: RowType = None,
    limit: Limit = None,
    after: After = None,
    reverse: Reverse = False,
    resolve: Annotated[
        bool,
        typer.Option(
            "--resolve", help="Show the records of each derived row instead, in its order."
        ),
    ] = False,
    space: SpaceName = None,
    store: AnyStore = None,
    token: Token = None,
    json: JsonLines = False,
) -> None:
    """List the keys of a space with their values, in order.

    All keys, or those with a prefix; without private members. In a pipe, key and value are
    separated by a tab; a terminal shows the start of long values.
    """
    selection = Selection(prefix=prefix, type=row_type, limit=limit, after=after, reverse=reverse)
    location = Location(space, store, token)
    columns = ("key", "value")
    asyncio.run(_show_rows(system, selection, location, columns, json=json, resolve=resolve))


async def _show_rows(
    system: str,
    selection: Selection,
    location: Location,
    columns: Sequence[str],
    *,
    json: bool,
    resolve: bool = False,
) -> None:
    from keyhouse.cli.access import open_space
    from keyhouse.cli.rows import Listing

    async with open_space(system, location) as access:
        with Listing(columns, json=json, space=access.space) as listing:
            async for row in access.rows(
                selection, keys_only="value" not in columns, resolve=resolve
            ):
                listing.add(row)


@examples(
    "keyhouse count rosey --space trivia --store sqlite:bot.db",
    "keyhouse count audiobooks --type book --space main",
)
def count(
    system: SystemName,
    prefix: Prefix = "",
    row_type: RowType = None,
    space: SpaceName = None,
    store: AnyStore = None,
    token: Token = None,
    json: Json = False,
) -> None:
    """Count the rows of a space. Reads every key."""
    selection = Selection(prefix=prefix, type=row_type)
    space, rows = asyncio.run(_count(system, selection, Location(space, store, token)))
    counted = {"space": space, "prefix": prefix, "type": row_type, "rows": rows}
    show(counted, lambda _: str(rows), json=json)


async def _count(system: str, selection: Selection, location: Location) -> tuple[str, int]:
    from keyhouse.cli.access import open_space

    async with open_space(system, location) as access:
        return access.space, await access.count(selection)
