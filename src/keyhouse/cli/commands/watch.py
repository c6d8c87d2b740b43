"""`keyhouse watch`: print changes as they are committed."""

import asyncio
import sys
from typing import Annotated

import typer

from keyhouse.cli.options import JsonLines, Selection, examples, spread


@examples(
    "keyhouse watch rosey --space trivia --store sqlite:bot.db",
    "keyhouse watch rosey game_ --space trivia --json | jq .value",
    "keyhouse watch rosey --space trivia --since 17 --service nats://host:4222",
)
@spread
def watch(
    selection: Selection,
    since: Annotated[
        int | None,
        typer.Option(min=0, metavar="REVISION", help="Start with the changes after this revision."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this many changes.")
    ] = None,
    json: JsonLines = False,
) -> None:
    """Print the changes of a space as they are committed.

    Runs until Ctrl-C. Each change is printed once, whichever process made it. An expired row is
    reported when it is swept. A revision whose changes are no longer stored, or that is newer than
    the newest one (after a restore), is an error.
    """
    asyncio.run(_watch(selection, since, count, json))


async def _watch(selection: Selection, since: int | None, count: int | None, json: bool) -> None:
    from contextlib import aclosing

    from keyhouse.cli.access import open_access, select_space
    from keyhouse.cli.output import one_line
    from keyhouse.cli.rows import Listing

    target, printed = select_space(selection), 0

    def on_start(revision: int) -> None:
        text = f"Watching {one_line(target.space)} after revision {revision}. Ctrl-C stops it."
        print(text, file=sys.stderr, flush=True)

    async with open_access(selection.system, target, selection) as access:
        with Listing(("revision", "change", "key", "value"), json=json, live=True) as listing:
            async with aclosing(access.watch(selection, since, on_start)) as changes:
                async for change in changes:
                    listing.add(change)
                    printed += 1
                    if printed == count:
                        return
