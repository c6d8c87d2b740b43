"""`keyhouse bench`: measure the store on the user's own engine."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from keyhouse.cli.files import open_file
from keyhouse.cli.options import Json, OptionalSystem, StoreName, examples
from keyhouse.cli.output import Part, Report, show_json, show_reports, visible
from keyhouse.cli.target import find_store_url
from keyhouse.cli.terminal import ProgressLine, interruptible


@examples(
    "keyhouse bench",
    "keyhouse bench --store postgresql://keyhouse@host/library",
    "keyhouse bench --store sqlite:library.db --cases 3,4,5 --plot bench.svg",
    "keyhouse bench --json > bench.json",
)
def bench(
    system: OptionalSystem = None,
    cases: Annotated[
        str | None,
        typer.Option(
            "--cases",
            metavar="CASES",
            help="Comma-separated cases: 3, 4, 5, 8, commit, read. [all]",
        ),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=5, max=99, metavar="N", help="Rounds of each workload.")
    ] = 5,
    seconds: Annotated[
        float,
        typer.Option(
            min=0.01, max=60, metavar="N", help="Approximate time of each workload per round."
        ),
    ] = 0.3,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Also draw the results to this file.")
    ] = None,
    store: StoreName = None,
    json: Json = False,
) -> None:
    """Measure the store on your own engine.

    Each case runs through the store and through a baseline, in turns: hand-written SQLite, or the
    engine alone. It prints the medians and their ratio. The cases are those of the documentation's
    page `Performance` that need no service. It writes to a separate area that is removed at the
    end; without a store, to a temporary SQLite file. Other load on the machine changes the numbers:
    run it twice.
    """
    from keyhouse.bench import conditions, parse_cases, tables, to_json

    chosen, url = parse_cases(cases), find_store_url(system, store)
    with interruptible("Stopped. The scratch area was removed."):
        report = asyncio.run(_bench(url, chosen, rounds, seconds, quiet=json))
    if plot is not None:
        _draw(plot, report)
    if json:
        show_json(to_json(report))
    else:
        parts = [Part(title, table) for title, table in tables(report).items()]
        show_reports([Report(report.engine_url, conditions(report), parts)])


async def _bench(
    url: str | None, cases: list[str], rounds: int, seconds: float, *, quiet: bool
) -> Any:
    from keyhouse.bench import Result, open_scratch, plan, run_cases, summary

    with ProgressLine() as line:

        def on_result(result: Result) -> None:
            if not quiet:
                line.print(summary(result))

        async with open_scratch(url) as scratch:
            print(visible(plan(scratch, cases, rounds)), file=sys.stderr, flush=True)
            return await run_cases(
                scratch,
                cases,
                rounds=rounds,
                seconds=seconds,
                on_progress=line.update,
                on_result=on_result,
            )


def _draw(path: Path, report: Any) -> None:
    from keyhouse.bench import conditions, svg

    title = f"Keyhouse on {report.engine_url}"
    with open_file(path, "wb") as file:
        file.write(svg(title, conditions(report), report.results).encode())
