"""`keyhouse backup`: a store of one moment, in a file that is whole or not there."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, Json, StoreUrl, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import SystemOrNone, stoppable

_MOMENTS = {
    "store": "All of it is of one moment.",
    "space": "Each space is of one moment of its own: the engine has no snapshots.",
}


@examples(
    "keyhouse backup --store sqlite:library.db --to library-2026-01-18.jsonl",
    "keyhouse backup audiobooks --data data --to library.jsonl",
)
def backup(
    system: SystemOrNone = None,
    to: Annotated[Path | None, typer.Option("--to", metavar="FILE", help="The new file.")] = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Write a store, as of one moment, to a file, and prove it.

    Others may write meanwhile. The file is read again to prove it whole. It holds all rows, private members included:
    guard it like the store. It is restored on any engine. Stopped, it leaves nothing behind.
    """
    from keyhouse.cli.output import Report, number, show_json, show_reports
    from keyhouse.errors import UsageError

    if to is None:
        raise UsageError("Name the new file: --to FILE.")
    with stoppable("No backup was made. Run it again."):
        done = asyncio.run(_backup(system, store, data, to))
    if json:
        show_json(done)
        return
    what = f"{number(done.rows, 'row')} of {number(done.spaces, 'space')}, {done.bytes:,} bytes, read again and whole."
    show_reports(
        [Report(str(to), f"{what} {_MOMENTS[done.moment]}\nSHA-256 of its rows: {done.sha256}")]
    )


async def _backup(system: str | None, store: str | None, data: Any, to: Path) -> Any:
    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.output import number
    from keyhouse.cli.place import url_of
    from keyhouse.cli.whole import made_whole
    from keyhouse.store import back_up

    with Line() as line:
        async with opened(url_of(system, store, data), existing=True) as engine:
            with made_whole(to) as part, opened_file(part, "x+b") as file:
                return await back_up(
                    engine,
                    file,
                    on_progress=lambda phase, rows: line.say(f"{phase}: {number(rows, 'row')}"),
                )
