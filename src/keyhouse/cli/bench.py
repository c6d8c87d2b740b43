"""`keyhouse bench`: how fast the user's own engine is, and what the store costs on top of it."""

import asyncio
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, Json, StoreUrl, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import SystemOrNone, stoppable


@examples(
    "keyhouse bench",
    "keyhouse bench --store postgresql://keyhouse@host/library",
    "keyhouse bench --store sqlite:library.db --seconds 1 --json",
)
def bench(
    system: SystemOrNone = None,
    seconds: Annotated[
        float, typer.Option(min=0.01, max=60, help="How long each contestant works in each of the five rounds.")
    ] = 0.2,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Measure typed records against the engine alone.

    Puts, gets and scans, in turns with the engine doing the same rows, as a drawing. It works in a space of its own,
    which it empties at the end; no other row is read or written. Without a store, it measures SQLite in a temporary
    file. Other work on the machine shows: run it twice.
    """
    from keyhouse.cli.contests import report
    from keyhouse.cli.output import show_json, show_reports

    with stoppable("Stopped. The space that it used is empty again."):
        done = asyncio.run(_bench(system, store, data, seconds))
    if json:
        show_json(done)
    else:
        show_reports([report(done)])


async def _bench(system: str | None, store: str | None, data: Any, seconds: float) -> Any:
    from keyhouse.cli.contests import measure
    from keyhouse.cli.opening import opened
    from keyhouse.cli.place import named_url
    from keyhouse.engines.registry import public_url

    url = named_url(system, store, data)
    with Line() as line, tempfile.TemporaryDirectory() if url is None else nullcontext("") as folder:
        place = url or f"sqlite:{Path(folder) / 'bench.db'}"
        async with opened(place, existing=url is not None) as engine:
            return await measure(engine, public_url(url) if url else "sqlite, in a temporary file", seconds, line.say)
