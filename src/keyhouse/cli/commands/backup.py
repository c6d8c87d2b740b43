"""`keyhouse backup`: write a consistent copy of a store to a file."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, Json, StoreUrl, SystemName, examples
from keyhouse.cli.output import Report, number, show_json, show_reports
from keyhouse.cli.target import check_system, engine_at, open_file, store_url
from keyhouse.cli.terminal import ProgressLine, interruptible
from keyhouse.errors import UsageError
from keyhouse.store import back_up

_CONSISTENCY = {
    "store": "One snapshot of the whole store.",
    "space": "One snapshot per space: the engine has no snapshots of the whole store.",
}


@examples(
    "keyhouse backup audiobooks library.jsonl --store sqlite:library.db",
    "keyhouse backup audiobooks backup.jsonl --data data",
)
def backup(
    system: SystemName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The new file.")],
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Write a consistent copy of a store to a file, and verify it.

    Other programs may write meanwhile. The file is read again and checked. It contains all rows,
    private members included: protect it like the store. Any engine can restore it. If interrupted,
    it leaves no file.
    """
    check_system(system)
    with interruptible("No backup was made. Run it again."), atomic_file(file) as part:
        done = asyncio.run(_backup(store_url(system, store, data), part))
    if json:
        show_json(done)
        return
    what = f"{number(done.rows, 'row')} of {number(done.spaces, 'space')}, {done.bytes:,} bytes"
    text = f"{what}, verified. {_CONSISTENCY[done.moment]}\nSHA-256 of its rows: {done.sha256}"
    show_reports([Report(str(file), text)])


async def _backup(url: str, path: Path) -> Any:
    with ProgressLine() as line:
        async with engine_at(url, existing=True) as engine:
            with open_file(path, "x+b") as file:
                return await back_up(
                    engine,
                    file,
                    on_progress=lambda phase, rows: line.update(f"{phase}: {number(rows, 'row')}"),
                )


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` when the block succeeds. If interrupted,
    there is neither."""
    if path.exists():
        raise UsageError("The file already exists: choose another name.", file=str(path))
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)
        yield part
        try:
            os.replace(part, path)
            _sync_folder(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name as durable as the file."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
