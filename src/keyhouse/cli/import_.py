"""`keyhouse import`: the rows of an export, into a store."""

import asyncio
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.opening import URL_HELP
from keyhouse.cli.output import Report, show_json, show_reports
from keyhouse.cli.progress import Line


def import_(
    url: Annotated[str, typer.Argument(help=URL_HELP)],
    source: Annotated[Path | None, typer.Option("--from", help="The file to read; without it, standard input.")] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="The last line, which proves it whole, may be missing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """Put the rows of an export into a store, over those that are there; rows that it does not have stay.

    Cut off, it is run again, and writes only what is not there.
    """
    imported = asyncio.run(_import(url, source, partial))
    if json:
        show_json(imported)
        return
    there = imported.rows - imported.written - imported.expired
    others = f"{there:,} were there already, {imported.expired:,} have expired"
    text = f"{imported.written:,} of {imported.rows:,} rows were written; {others}."
    show_reports([Report("Imported", text)])


async def _import(url: str, source: Path | None, partial: bool) -> Any:
    from keyhouse import store
    from keyhouse.cli.opening import opened, opened_file

    with Line() as line, nullcontext(sys.stdin.buffer) if source is None else opened_file(source, "rb") as lines:
        async with opened(url) as engine:
            return await store.import_rows(
                engine, lines, partial=partial, on_progress=lambda rows: line.say(f"{rows:,} rows")
            )
