"""`keyhouse watch`: print changes as they are committed."""

import asyncio
import sys
from contextlib import aclosing
from typing import Annotated

import typer

from keyhouse.cli.options import (
    AnyStore,
    JsonLines,
    Location,
    Prefix,
    RowType,
    Selection,
    SpaceName,
    SystemName,
    Token,
    examples,
)


@examples(
    "keyhouse watch rosey --space trivia --store sqlite:bot.db",
    "keyhouse watch rosey game_ --space trivia --json | jq .value",
    "keyhouse watch rosey --space trivia --since 17 --store nats://host:4222",
)
def watch(
    system: SystemName,
    prefix: Prefix = "",
    row_type: RowType = None,
    since: Annotated[
        int | None,
        typer.Option(min=0, metavar="REVISION", help="Start with the changes after this revision."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this many changes.")
    ] = None,
    space: SpaceName = None,
    store: AnyStore = None,
    token: Token = None,
    json: JsonLines = False,
) -> None:
    """Print the changes of a space as they are committed.

    Runs until Ctrl-C. Each change is printed once, whichever process made it. An expired row is
    reported when it is swept. A revision whose changes are no longer stored, or that is newer than
    the newest one (after a restore), is an error.
    """
    selection = Selection(prefix=prefix, type=row_type)
    asyncio.run(_watch(system, selection, Location(space, store, token), since, count, json))


async def _watch(
    system: str,
    selection: Selection,
    location: Location,
    since: int | None,
    count: int | None,
    json: bool,
) -> None:
    from keyhouse.cli.access import open_space
    from keyhouse.cli.output import one_line
    from keyhouse.cli.rows import Listing

    printed = 0
    async with open_space(system, location) as access:

        def on_start(revision: int) -> None:
            text = f"Watching {one_line(access.space)} after revision {revision}. Ctrl-C stops it."
            print(text, file=sys.stderr, flush=True)

        with Listing(("revision", "change", "key", "value"), json=json, live=True) as listing:
            async with aclosing(access.watch(selection, since, on_start)) as changes:
                async for change in changes:
                    listing.add(change)
                    printed += 1
                    if printed == count:
                        return
