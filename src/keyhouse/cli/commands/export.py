"""`keyhouse export`: write every row of a store as JSON lines."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse import store as stores
from keyhouse.cli.files import open_file
from keyhouse.cli.options import Json, SpaceNames, StoreName, SystemName, examples
from keyhouse.cli.output import Report, number, show
from keyhouse.cli.systems import check_system, load_system
from keyhouse.cli.target import engine_at, store_url
from keyhouse.cli.terminal import ProgressLine, interruptible
from keyhouse.errors import UsageError
from keyhouse.schema import Schema


@examples(
    "keyhouse export audiobooks rows.jsonl --store sqlite:library.db",
    "keyhouse export audiobooks rows.jsonl --store sqlite:library.db --resume",
    "keyhouse export audiobooks --records --store sqlite:library.db",
)
def export(
    system: SystemName,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The new file. Default: standard output.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue a file whose export was interrupted.")
    ] = False,
    space: SpaceNames = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="Only records, without private members, for reading: it can't be imported.",
        ),
    ] = False,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Write every row as a line of JSON.

    A line has space, key, value and expiry. The export is complete, private members included:
    protect it like the store. Each page of rows is read at its own revision; `backup` reads the
    whole store at one.
    """
    check_system(system)
    if file is None and resume:
        raise UsageError("--resume needs a FILE.")
    schemas = load_system(system).schemas if records else ()
    url = store_url(system, store)
    with interruptible(
        "Interrupted. Run the same command again with --resume:"
        " it resumes after the last full line."
    ):
        done = asyncio.run(_export(url, file, resume, space or None, schemas))
    if file is None:
        return
    left_out = f" {number(done.left_out, 'row')} left out." if records else ""
    text = f"{number(done.rows, 'row')}, SHA-256 {done.sha256}.{left_out}"
    show(done, lambda _: Report(str(file), text), json=json)


async def _export(
    url: str,
    path: Path | None,
    resume: bool,
    spaces: list[str] | None,
    schemas: tuple[Schema, ...],
) -> Any:
    async def run(
        write: Callable[[bytes], object], start: stores.PartialExport | None
    ) -> stores.ExportResult:
        with ProgressLine() as line:
            async with engine_at(url, existing=True) as engine:
                return await stores.export_rows(
                    engine,
                    write,
                    spaces=spaces,
                    schemas=schemas,
                    resume=start,
                    on_progress=lambda rows: line.update(number(rows, "row")),
                )

    if path is None:
        return await run(sys.stdout.buffer.write, None)
    with open_file(path, "r+b" if resume else "xb") as file:
        start = stores.read_partial_export(file) if resume else None
        if start is not None:
            file.seek(start.bytes)
            file.truncate()
        return await run(file.write, start)
