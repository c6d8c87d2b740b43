"""`keyhouse export`: every row of a store as JSON lines."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, Json, StoreUrl, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.target import SYSTEM_HELP, system_names
from keyhouse.cli.whole import Spaces, stoppable


@examples(
    "keyhouse export --store sqlite:library.db --to rows.jsonl",
    "keyhouse export --store sqlite:library.db --to rows.jsonl --resume",
    "keyhouse export audiobooks --records --store sqlite:library.db",
)
def export(
    system: Annotated[
        str | None,
        typer.Argument(
            metavar="SYSTEM",
            help=SYSTEM_HELP + " Only --data and --records need it.",
            autocompletion=system_names,
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file to write; without it, standard output."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with a file whose export was cut off.")
    ] = False,
    space: Spaces = None,
    records: Annotated[
        bool,
        typer.Option(
            "--records",
            help="For people: the records alone, without private members. Can't be imported.",
        ),
    ] = False,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Write every row as a line of JSON.

    A line has space, key, value and expiry. It is complete, private members included: guard it like the store. Each
    page of rows is of its own moment: see backup for one moment of the whole.
    """
    from keyhouse.cli.output import Report, number, show_json, show_reports
    from keyhouse.errors import UsageError

    if to is None and resume:
        raise UsageError("Only an export to a file can be resumed: name it with --to.")
    if records and system is None:
        raise UsageError(
            "Name the system whose records you want: keyhouse export SYSTEM --records."
        )
    with stoppable(
        "Cut off. Run the same command again with --resume: it goes on behind the last whole line."
    ):
        done = asyncio.run(_export(system, store, data, to, resume, space or None, records))
    if to is None:
        return
    if json:
        show_json(done)
    else:
        left_out = f" {number(done.left_out, 'row')} left out." if records else ""
        show_reports(
            [Report(str(to), f"{number(done.rows, 'row')}, SHA-256 {done.sha256}.{left_out}")]
        )


async def _export(
    system: str | None,
    url: str | None,
    data: Any,
    to: Path | None,
    resume: bool,
    spaces: list[str] | None,
    records: bool,
) -> Any:
    from keyhouse import store
    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.output import number
    from keyhouse.cli.place import url_of
    from keyhouse.cli.target import target

    schemas = target(system).schemas if records and system is not None else ()

    async def run(
        write: Callable[[bytes], object], start: store.PartialExport | None
    ) -> store.ExportResult:
        with Line() as line:
            async with opened(url_of(system, url, data), existing=True) as engine:
                return await store.export_rows(
                    engine,
                    write,
                    spaces=spaces,
                    schemas=schemas,
                    resume=start,
                    on_progress=lambda rows: line.say(number(rows, "row")),
                )

    if to is None:
        return await run(sys.stdout.buffer.write, None)
    with opened_file(to, "r+b" if resume else "xb") as file:
        start = store.read_partial_export(file) if resume else None
        if start is not None:
            file.seek(start.bytes)
            file.truncate()
        return await run(file.write, start)
