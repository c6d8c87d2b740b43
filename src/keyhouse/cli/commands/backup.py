"""`keyhouse backup`: write a consistent copy of a store to a file."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.files import atomic_file, open_file
from keyhouse.cli.options import Json, StoreName, SystemName, examples
from keyhouse.cli.output import Report, number, show
from keyhouse.cli.systems import check_system
from keyhouse.cli.target import engine_at, store_url
from keyhouse.cli.terminal import ProgressLine, interruptible
from keyhouse.store import back_up

_CONSISTENCY = {
    "store": "One snapshot of the whole store.",
    "space": "One snapshot per space: the engine has no snapshots of the whole store.",
}


@examples(
    "keyhouse backup audiobooks library.jsonl --store sqlite:library.db",
    "keyhouse backup audiobooks backup.jsonl",
)
def backup(
    system: SystemName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Write a consistent copy of a store to a file, and verify it.

    Other programs may write meanwhile. The file is read again and checked. It contains all rows,
    private members included: protect it like the store. Any engine can restore it. If interrupted,
    it leaves no file.
    """
    check_system(system)
    with interruptible("No backup was made. Run it again."), atomic_file(file) as part:
        done = asyncio.run(_backup(store_url(system, store), part))
    show(done, lambda done: Report(str(file), _summary(done)), json=json)


def _summary(done: Any) -> str:
    what = f"{number(done.rows, 'row')} of {number(done.spaces, 'space')}, {done.bytes:,} bytes"
    return f"{what}, verified. {_CONSISTENCY[done.moment]}\nSHA-256 of its rows: {done.sha256}"


async def _backup(url: str, path: Path) -> Any:
    with ProgressLine() as line:
        async with engine_at(url, existing=True) as engine:
            with open_file(path, "x+b") as file:
                return await back_up(
                    engine,
                    file,
                    on_progress=lambda phase, rows: line.update(f"{phase}: {number(rows, 'row')}"),
                )
