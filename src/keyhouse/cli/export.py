"""`keyhouse export`: every row of a store as JSON lines."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.opening import URL_HELP
from keyhouse.cli.output import Report, show_json, show_reports
from keyhouse.cli.progress import Line
from keyhouse.cli.target import system_names


def export(
    url: Annotated[str, typer.Argument(help=URL_HELP)],
    to: Annotated[Path | None, typer.Option(help="The file to write; without it, standard output.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a file whose export was cut off.")] = False,
    space: Annotated[list[str] | None, typer.Option(help="Only this space; may be given several times.")] = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="For people: the records of this system (or module:NAME), without private members. Can't be imported.",
            autocompletion=system_names,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="What was done as JSON, for programs.")] = False,
) -> None:
    """Write every row as a line of JSON: space, key, value and expiry.

    It is complete, private members included: guard it like the store.
    """
    from keyhouse.errors import UsageError

    if to is None and resume:
        raise UsageError("Only an export to a file can be resumed: name it with --to.")
    exported = asyncio.run(_export(url, to, resume, space or None, system))
    left_out = f" {exported.left_out:,} rows were left out." if system is not None else ""
    if to is None:
        return
    if json:
        show_json(exported)
    else:
        show_reports([Report(str(to), f"{exported.rows:,} rows, SHA-256 {exported.sha256}.{left_out}")])


async def _export(url: str, to: Path | None, resume: bool, spaces: list[str] | None, system: str | None) -> Any:
    from keyhouse import store
    from keyhouse.cli.opening import opened, opened_file
    from keyhouse.cli.target import target

    schemas = target(system).schemas if system is not None else ()

    async def run(write: Callable[[bytes], object], start: store.Begun | None) -> store.Exported:
        with Line() as line:
            async with opened(url, existing=True) as engine:
                return await store.export_rows(
                    engine,
                    write,
                    spaces=spaces,
                    schemas=schemas,
                    resume=start,
                    on_progress=lambda rows: line.say(f"{rows:,} rows"),
                )

    if to is None:
        return await run(sys.stdout.buffer.write, None)
    with opened_file(to, "r+b" if resume else "xb") as file:
        start = store.begun(file) if resume else None
        if start is not None:
            file.seek(start.bytes)
            file.truncate()
        return await run(file.write, start)
