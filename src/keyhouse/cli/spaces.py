"""`keyhouse spaces`: the spaces that hold rows."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from keyhouse.cli.options import DataFolder, JsonLines, StoreUrl, examples
from keyhouse.cli.target import SYSTEM_HELP, system_names


@examples(
    "keyhouse spaces --store sqlite:bot.db",
    "keyhouse spaces rosey --data data",
)
def spaces(
    system: Annotated[
        str | None,
        typer.Argument(
            metavar="SYSTEM",
            help=SYSTEM_HELP + " A --store needs none.",
            autocompletion=system_names,
        ),
    ] = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: JsonLines = False,
) -> None:
    """Name every space that holds a row, in order."""
    asyncio.run(_spaces(system, store, data, json))


async def _spaces(system: str | None, store: str | None, data: Path | None, json: bool) -> None:
    from keyhouse.cli.opening import opened
    from keyhouse.cli.output import one_line, show_line
    from keyhouse.cli.place import url_of

    async with opened(url_of(system, store, data), existing=True) as engine:
        async for space in engine.spaces():
            if json:
                show_line({"space": space})
            else:
                print(one_line(space))
