"""`keyhouse audiobooks`: a demonstration library, and stores of the original program."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import Json, StoreName, examples
from keyhouse.cli.output import number, one_line, show_json

NAME = "audiobooks"
LEFT_OUT = 1

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def audiobooks() -> None:
    """A demonstration library, and stores of the original program."""


@app.command()
@examples("keyhouse audiobooks demo books")
def demo(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    seconds: Annotated[
        float, typer.Option("--seconds", metavar="SECONDS", min=1, max=600, help="Of each file.")
    ] = 30.0,
    json: Json = False,
) -> None:
    """Write a small library of generated audio.

    Several formats, chapters, covers, a series with the positions 1, 1.5 and 2, and a broken file.
    Serve it with roots = ["FOLDER"] in the table [audiobooks], and start a scan.
    """
    from keyhouse_audiobooks.files.demo import write_demo

    written = write_demo(folder, seconds=seconds)
    if json:
        show_json({"folder": str(folder), "files": written})
    else:
        _say(f"Wrote {number(written, 'file')} to {folder}.")


class Switch(StrEnum):
    ON = "on"
    OFF = "off"


@app.command()
@examples("keyhouse audiobooks tenants on")
def tenants(
    to: Annotated[Switch, typer.Argument(metavar="on|off", help="With the prefix, or without.")],
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Convert a store to several libraries, or back: `tenant:<name>:` in front of all keys.

    Stop the service first, and change its setting `tenants` before the next start. A conversion
    that was interrupted is continued by the next one.
    """
    from keyhouse.cli.target import engine_at, store_url
    from keyhouse_audiobooks.transfer import convert_tenants

    async def run() -> Any:
        async with engine_at(store_url(NAME, store)) as engine:
            return await convert_tenants(engine, on=to is Switch.ON)

    found = asyncio.run(run())
    if json:
        show_json(found)
        return
    moved = sum(each.moved for each in found.values())
    _say(f"Moved {number(moved, 'row')} of {number(len(found), 'space')}.")
    for name, each in found.items():
        for key in each.conflicts:
            _say(f"{name}: {key} was left: its new key has another row.")


@app.command("import-original")
@examples("keyhouse audiobooks import-original rows.jsonl")
def import_original(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help='Its rows as JSON lines: {"key": "b:…", "value": {…}}.',
        ),
    ],
    library: Annotated[
        str, typer.Option("--library", metavar="NAME", help="The library to import into.")
    ] = "main",
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Import a store of the original program, with unescaped names in its keys.

    Records are read; index rows are written again from them. Rows that cannot be read are listed
    and left out. Stop the service first. Exit code 1: some were left out.
    """
    from keyhouse.cli.target import engine_at, store_url
    from keyhouse_audiobooks.transfer import import_lines

    async def run() -> Any:
        async with engine_at(store_url(NAME, store)) as engine:
            with file.open("rb") as lines:
                return await import_lines(engine, library, lines)

    found = asyncio.run(run())
    if json:
        show_json(found)
    else:
        _say(f"Imported {number(found.imported, 'record')}; index rows: {found.index_rows}.")
        if found.left_out:
            _say(f"Left out {number(found.left_out, 'row')}:")
        for problem in found.problems:
            _say(problem)
    if found.left_out:
        raise typer.Exit(LEFT_OUT)


def _say(text: str) -> None:
    print(one_line(text))
