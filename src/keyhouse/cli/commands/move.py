"""`keyhouse move`: copy a store to another engine, also while programs write, and verify it."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse import store as stores
from keyhouse.cli.options import Json, SystemName, examples
from keyhouse.cli.output import Part, Report, number, show_json, show_reports
from keyhouse.cli.progress import ProgressLine
from keyhouse.cli.prompt import interruptible
from keyhouse.cli.target import check_system, engine_at, served_name, store_url
from keyhouse.engines.system_urls import make_folder, url_of
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError

_SPACES_SHOWN = 20
_SWITCH = (
    "All rows are copied, and changes are followed."
    " Stop the programs that write to the source, then press Enter."
)


@examples(
    "keyhouse move audiobooks sqlite:books.db postgresql://user@host/books",
    "keyhouse move audiobooks sqlite:books.db rocksdb:books --follow",
    "keyhouse move board:BOARD keyhouse-data postgresql://user@host/board",
)
def move(
    ctx: typer.Context,
    system: SystemName,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM",
            help="URL of the engine that holds the rows: sqlite:a.db; or the data folder of"
            " keyhouse serve.",
        ),
    ],
    target: Annotated[
        str | None, typer.Argument(metavar="TO", help="URL of an engine without rows: rocksdb:b")
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow",
            help="After copying, follow changes until Enter (or the end of standard input).",
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Copy a store to another engine, and verify the copy.

    Counts and digests are compared at the end. If interrupted, run it again: it resumes. The source
    is only read. `{system}` in a URL is replaced by the name of the system.

    If FROM is the data folder of `keyhouse serve`, TO is the engine that it is served from next, as
    its --engine: the rows get the table or bucket names that the service looks for.
    """
    if target is None:
        ctx.fail("Name the system first: keyhouse move SYSTEM FROM TO.")
    check_system(system)
    is_served = ":" not in source and Path(source).is_dir()
    if is_served:
        served_from = store_url(system, None, Path(source))
        urls = [served_from, url_of(served_name(system), target, alone=True)]
        make_folder(target)
    else:
        urls = [url.replace("{system}", system) for url in (source, target)]
    with interruptible("The move is incomplete. Run the same command again: it resumes."):
        moved = asyncio.run(_move(*urls, follow=follow))
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
    text = f"{what}, identical in both; {moved.written:,} written."
    if is_served:
        url = target if public_url(target) == target else "TO"  # its password is not printed
        text += f" Now serve it: keyhouse serve {system} --engine {url}"
    show_reports([Report("Moved", text, [Part("Spaces and their digests", list(spaces))])])


async def _move(source: str, target: str, *, follow: bool) -> Any:
    if source == target:
        raise UsageError("FROM and TO are the same engine.", url=public_url(source))
    switch = _switch() if follow else None
    phase = ""
    with ProgressLine() as line:

        def report(progress: stores.MoveProgress) -> None:
            nonlocal phase
            if phase != "following" == progress.phase:
                line.print(_SWITCH)
            phase = progress.phase
            rows = f"{number(progress.rows, 'row')}, {progress.written:,} written"
            line.update(f"{progress.phase} {progress.space}: {rows}")

        async with engine_at(source, existing=True) as one, engine_at(target) as other:
            return await stores.move(
                one, other, name=public_url(source), switch=switch, on_progress=report
            )


def _switch() -> asyncio.Event:
    """Return an event that is set by a line on standard input. Its thread does not keep the process
    alive."""
    switch, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.readline()
        loop.call_soon_threadsafe(switch.set)

    threading.Thread(target=wait, daemon=True).start()
    return switch
