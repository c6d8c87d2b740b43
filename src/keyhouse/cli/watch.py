"""`keyhouse watch`: changes as they happen."""

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
        int | None, typer.Option(min=0, metavar="REVISION", help="First what changed after this.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End after this many changes.")
    ] = None,
    json: JsonLines = False,
) -> None:
    """Show the changes of a space as they are committed.

    Whoever writes, until Ctrl-C. Nothing is missed and nothing comes twice. An expiry shows when the row is swept. A
    revision whose changes are no longer kept, or which is still to come as after a restore, is refused.
    """
    asyncio.run(_watch(selection, since, count, json))


async def _watch(selection: Selection, since: int | None, count: int | None, json: bool) -> None:
    from contextlib import aclosing

    from keyhouse.cli.access import reached, selected
    from keyhouse.cli.listing import Listing
    from keyhouse.cli.output import one_line

    place, seen = selected(selection), 0

    def begun(revision: int) -> None:
        told = f"Watching {one_line(place.space)} from revision {revision} on; Ctrl-C ends it."
        print(told, file=sys.stderr, flush=True)

    async with reached(selection.system, place, selection) as access:
        with Listing(("revision", "change", "key", "value"), json=json, live=True) as listing:
            async with aclosing(access.watch(selection, since, begun)) as changes:
                async for change in changes:
                    listing.add(change)
                    seen += 1
                    if seen == count:
                        return
