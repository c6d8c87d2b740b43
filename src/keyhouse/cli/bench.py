"""`keyhouse bench`: the table of performance, measured on the user's own engine."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.options import DataFolder, Json, StoreUrl, examples
from keyhouse.cli.progress import Line
from keyhouse.cli.whole import SystemOrNone, stoppable


@examples(
    "keyhouse bench",
    "keyhouse bench --store postgresql://keyhouse@host/library",
    "keyhouse bench --store sqlite:library.db --only 3,4,5 --plot bench.svg",
    "keyhouse bench --json > bench.json",
)
def bench(
    system: SystemOrNone = None,
    only: Annotated[
        str | None,
        typer.Option(metavar="ROWS", help="Some rows, with commas: 1 to 6, 8, commit, read. [all]"),
    ] = None,
    rounds: Annotated[
        int,
        typer.Option(min=5, max=99, metavar="N", help="How often each contestant has its turn."),
    ] = 5,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.01, max=60, metavar="N", help="How long each works in each round, about."
        ),
    ] = 0.3,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Draw it into this file as well.")
    ] = None,
    store: StoreUrl = None,
    data: DataFolder = None,
    json: Json = False,
) -> None:
    """Measure the table of performance on your own engine.

    The same work by Keyhouse and with nothing in between, in turns, as medians and their ratio: on SQLite by hand, elsewhere
    by the engine alone. Rows are those of docs/performance.md. It works beside your rows and removes what it made; without a
    store, in a temporary SQLite file. Other work on the machine shows: run it twice.
    """
    from keyhouse.cli.benching import named_rows, report, told
    from keyhouse.cli.output import show_json, show_reports

    wanted = named_rows(only)
    with stoppable("Stopped. What it had made is removed."):
        done = asyncio.run(_bench(system, store, data, wanted, rounds, seconds, quiet=json))
    if plot is not None:
        _draw(plot, done)
    if json:
        show_json(told(done))
    else:
        show_reports([report(done)])


async def _bench(
    system: str | None,
    store: str | None,
    data: Any,
    wanted: list[str],
    rounds: int,
    seconds: float,
    *,
    quiet: bool,
) -> Any:
    from keyhouse.bench import Figure, measure, scratch
    from keyhouse.cli.benching import line_of, plan
    from keyhouse.cli.place import named_url

    with Line() as line:

        def show(figure: Figure) -> None:
            if not quiet:
                line.note(line_of(figure))

        async with scratch(named_url(system, store, data)) as place:
            print(plan(place, wanted, rounds), file=sys.stderr, flush=True)
            return await measure(
                place, wanted, rounds=rounds, seconds=seconds, say=line.say, show=show
            )


def _draw(path: Path, done: Any) -> None:
    from keyhouse.bench import svg
    from keyhouse.cli.benching import about
    from keyhouse.cli.opening import opened_file

    with opened_file(path, "wb") as file:
        file.write(svg(f"Keyhouse on {done.place}", about(done), done.figures).encode())
