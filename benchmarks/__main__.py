"""`make bench`: measure, print the table, write the numbers as JSON, draw them.

make bench                          everything, some minutes
make bench ARGS="--quick"           smaller, for a look while working
make bench ARGS="--only 3,4"        some rows
make bench ARGS="--only exchange"   export and import of a million rows, against a bare dump (--quick: a tenth)
make bench ARGS="--only engines"    every engine against its bare driver; or one, by its name: --only postgres
"""

import argparse
import asyncio
import platform
import tempfile
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import msgspec

from benchmarks import exchange, growth, peers, reading, rosey, served, sweeping, writing
from benchmarks.growth import Grown
from benchmarks.report import draw, print_figure, print_growth, print_latencies, print_served
from keyhouse.bench import http
from keyhouse.bench.figure import Figure

ENGINES = ("sqlite", "postgres", "rocksdb", "jetstream", "dynamodb")
ROWS = ("1", "2", "3", "4", "5", "6", "8", "growth", "exchange")


class Report(msgspec.Struct):
    machine: str
    python: str
    figures: list[Figure]
    growth: list[Grown]
    plugin_growth: list[Grown]
    served_growth: list[served.Served]
    latencies: list[rosey.Latency]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer rows")
    parser.add_argument(
        "--only",
        type=_wanted,
        default=set(ROWS + ENGINES),
        help="rows and engines to measure, with commas between them",
    )
    parser.add_argument(
        "--folder", type=Path, help="where the files are made (default: a temporary folder)"
    )
    parser.add_argument(
        "--json", type=Path, default=Path("bench.json"), help="where the numbers go"
    )
    parser.add_argument(
        "--plot", type=Path, default=Path("bench.png"), help="where the picture goes"
    )
    return parser.parse_args()


def _wanted(text: str) -> set[str]:
    named = set(text.split(","))
    unknown = named - {*ROWS, *ENGINES, "engines"}
    if unknown:
        raise argparse.ArgumentTypeError(
            f"{', '.join(sorted(unknown))}; there are {', '.join((*ROWS, 'engines', *ENGINES))}"
        )
    return named | set(ENGINES) if "engines" in named else named


async def figures(only: set[str], folder: Path, *, quick: bool) -> AsyncIterator[Figure]:
    rounds = 3 if quick else 7
    if "3" in only:
        yield await writing.measure(_made(folder / "writing"), rounds, 1_280 if quick else 6_400)
    if only & {"4", "5"}:
        for figure in await reading.measure(
            _made(folder / "reading"), rounds, 2_000 if quick else 10_000
        ):
            if figure.row in only:
                yield figure
    if "6" in only:
        size = 4_000 if quick else 20_000
        figure = await asyncio.to_thread(
            http.measure, _made(folder / "http"), rounds, size, peers.pocketbase
        )
        figure.note += f". {peers.note('PocketBase, one record by its id, with a token', figure.peer_ratio is not None)}"
        yield figure
    if "8" in only:
        for layout in (None, "rosey"):
            place = _made(folder / f"sweeping-{layout}")
            for figure in await sweeping.measure(
                place, rounds, 2_000 if quick else 10_000, layout=layout
            ):
                yield figure
    if "exchange" in only:
        for figure in await exchange.measure(
            _made(folder / "exchange"), 3, 100_000 if quick else 1_000_000
        ):
            yield figure
    for name in ENGINES:
        if name in only:
            engine = import_module(f"benchmarks.engines.{name}")
            for figure in await engine.measure(_made(folder / name), rounds, quick=quick):
                yield figure


async def run(options: argparse.Namespace, folder: Path) -> Report:
    only = options.only
    report = Report(platform.platform(), platform.python_version(), [], [], [], [], [])
    if only & {"1", "2"}:
        rounds = 3 if options.quick else 7
        found, report.latencies = await rosey.measure(
            _made(folder / "rosey"), rounds, quick=options.quick
        )
        for figure in found:
            if figure.row in only:
                print_figure(figure)
                report.figures.append(figure)
        print_latencies(report.latencies)
    async for figure in figures(only, folder, quick=options.quick):
        print_figure(figure)
        report.figures.append(figure)
    if "growth" in only:
        sizes = (1_000, 10_000, 100_000) if options.quick else (1_000, 10_000, 100_000, 1_000_000)
        report.growth = await growth.measure(_made(folder / "growth"), sizes)
        print_growth(report.growth)
        report.plugin_growth = await growth.measure(
            _made(folder / "growth-rosey"), sizes, layout="rosey"
        )
        print_growth(report.plugin_growth, of=" in the table of plugin storage")
        report.served_growth = await served.measure(folder / "growth-rosey", (sizes[0], sizes[-1]))
        print_served(report.served_growth)
    return report


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="keyhouse-bench-", dir=options.folder) as folder:
        report = asyncio.run(run(options, Path(folder)))
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    drawn = draw(report.figures, options.plot)
    print(
        f"Numbers: {options.json}"
        + (f"   Picture: {options.plot}" if drawn else "   (no matplotlib: no picture)")
    )


if __name__ == "__main__":
    main()
