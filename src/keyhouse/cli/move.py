"""`keyhouse move`: a store from one engine to another, proved to be the same, with or without its writers at work."""

import asyncio
import sys
import threading
from typing import Annotated, Any

import typer

from keyhouse.cli.options import examples
from keyhouse.cli.output import Part, Report, number, show_json, show_reports
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import stoppable

_SPACES_SHOWN = 20

_STOP = "All rows are copied, and changes are followed. Stop the writers of the source, then press Enter."


@examples(
    "keyhouse move sqlite:library.db postgresql://keyhouse@host/library",
    "keyhouse move sqlite:library.db rocksdb:library --follow",
)
def move(
    source: Annotated[
        str,
        typer.Argument(metavar="FROM_URL", help="The engine that holds the store: sqlite:data.db"),
    ],
    target: Annotated[
        str, typer.Argument(metavar="TO_URL", help="An engine without rows: rocksdb:folder")
    ],
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="Follow changes after copying, until a line (or the end) on standard input.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Copy a store to another engine, and prove it.

    Counts and digests of both must be the same at the end. Cut off, it is run again, and goes on. The source is only
    read.
    """
    with stoppable("The move has not ended. Run the same command again: it goes on."):
        moved = asyncio.run(_move(source, target, follow))
    if json:
        show_json(moved)
        return
    spaces = [
        (space.space, number(space.rows, "row"), space.digest[:16])
        for space in moved.spaces[:_SPACES_SHOWN]
    ]
    if len(moved.spaces) > _SPACES_SHOWN:
        spaces.append((f"and {len(moved.spaces) - _SPACES_SHOWN:,} more", "", ""))
    what = f"{number(moved.rows, 'row')} of {number(len(moved.spaces), 'space')}"
    text = f"{what}, the same in both; {moved.written:,} written."
    show_reports([Report("Moved", text, [Part("Spaces, with their digests", list(spaces))])])


async def _move(source: str, target: str, follow: bool) -> Any:
    from keyhouse import store
    from keyhouse.cli.opening import opened
    from keyhouse.engines.registry import public_url
    from keyhouse.errors import UsageError

    if source == target:
        raise UsageError("Both are the same engine: name another target.", url=public_url(source))
    switch = _switch() if follow else None
    phase = ""
    with Line() as line:

        def report(progress: store.MoveProgress) -> None:
            nonlocal phase
            if phase != "following" == progress.phase:
                line.note(_STOP)
            phase = progress.phase
            line.say(
                f"{progress.phase} {progress.space}: {number(progress.rows, 'row')}, {progress.written:,} written"
            )

        async with opened(source, existing=True) as one, opened(target) as other:
            return await store.move(
                one, other, name=public_url(source), switch=switch, on_progress=report
            )


def _switch() -> asyncio.Event:
    """Set by a line on standard input. Its thread ends with the process, not the other way round."""
    switch, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.readline()
        loop.call_soon_threadsafe(switch.set)

    threading.Thread(target=wait, daemon=True).start()
    return switch
