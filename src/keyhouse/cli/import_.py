"""`keyhouse import`: the rows of an export, into a store."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, Json, StoreUrl, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import SystemOrNone, stoppable


@examples(
    "keyhouse import --store rocksdb:library --from rows.jsonl",
    "keyhouse export --store sqlite:a.db | keyhouse import --store sqlite:b.db",
)
def import_(
    system: SystemOrNone = None,
    source: Annotated[
        Path | None, typer.Option("--from", metavar="FILE", help="The file to read; without it, standard input.")
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="The last line, which proves it whole, may be missing.")
    ] = False,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Put the rows of an export into a store.

    They go over those that are there; rows that the export does not have stay. Cut off, it is run again, and writes
    only what is not there.
    """
    from keyhouse.cli.output import Report, number, show_json, show_reports

    with stoppable("Cut off. Run the same command again: it writes only what is not there."):
        done = asyncio.run(_import(system, store, data, source, partial))
    if json:
        show_json(done)
        return
    there = done.rows - done.written - done.expired
    others = f"{there:,} there already, {done.expired:,} expired"
    text = f"{done.written:,} of {number(done.rows, 'row')} written; {others}."
    show_reports([Report("Imported", text)])


async def _import(system: str | None, url: str | None, data: Any, source: Path | None, partial: bool) -> Any:
    from keyhouse import store
    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.place import url_of

    with Line() as line, nullcontext(sys.stdin.buffer) if source is None else opened_file(source, "rb") as lines:
        async with opened(url_of(system, url, data)) as engine:
            return await store.import_rows(
                engine, lines, partial=partial, on_progress=lambda rows: line.say(f"{rows:,} rows")
            )
