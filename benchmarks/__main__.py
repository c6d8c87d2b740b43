"""`make bench`: measure, print the results, write them as JSON, draw them.

make bench                          everything, some minutes
make bench ARGS="--quick"           smaller, for a look while working
make bench ARGS="--cases 3,4"       some cases
make bench ARGS="--cases export"    export and import of a million rows, against a bare dump
make bench ARGS="--cases engines"   every engine against its bare driver; or one: --cases postgres
"""

import argparse
import asyncio
import platform
import tempfile
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path

import msgspec

from benchmarks import (
    audio_scans,
    audiobook_writes,
    catalog_searches,
    disk_bytes,
    erasures,
    export_import,
    jetstream_mirrors,
    peers,
    reads,
    searches,
    sweeps,
    writes,
)
from benchmarks import growth as store_growth
from benchmarks.report import (
    draw,
    print_growth,
    print_latencies,
    print_result,
    print_service_growth,
)
from benchmarks.services import growth as service_growth
from benchmarks.services import (
    history_events,
    http,
    media,
    playback_positions,
    plugin_storage,
    schema_records,
    workers,
)
from keyhouse.bench import Result

ENGINES = ("sqlite", "postgres", "rocksdb", "jetstream", "dynamodb")
CASES = (
    *("1", "2", "2b", "3", "3b", "4", "5", "6", "6b", "7", "8", "9", "10", "11", "12", "13"),
    *("15", "16", "17", "18"),
    *("growth", "export"),
)


class Report(msgspec.Struct):
    machine: str
    python: str
    results: list[Result]
    growth: list[store_growth.StoreSize]
    plugin_growth: list[store_growth.StoreSize]
    service_growth: list[service_growth.ServiceSize]
    latencies: list[plugin_storage.Latency]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, fewer rows")
    parser.add_argument(
        "--cases",
        type=_parse_cases,
        default=set(CASES + ENGINES),
        help="comma-separated cases and engines to measure",
    )
    parser.add_argument(
        "--folder", type=Path, help="where files are made (default: a temporary one)"
    )
    parser.add_argument("--json", type=Path, default=Path("bench.json"), help="file of the numbers")
    parser.add_argument("--plot", type=Path, default=Path("bench.png"), help="file of the chart")
    return parser.parse_args()


def _parse_cases(text: str) -> set[str]:
    names = set(text.split(","))
    unknown = names - {*CASES, *ENGINES, "engines"}
    if unknown:
        known = ", ".join((*CASES, "engines", *ENGINES))
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; known: {known}")
    return names | set(ENGINES) if "engines" in names else names


async def results(cases: set[str], folder: Path, *, quick: bool) -> AsyncIterator[Result]:
    rounds = 3 if quick else 7
    if "2b" in cases:
        place = _make(folder / "rosey-ten")
        for result in await plugin_storage.measure_ten(place, rounds, quick=quick):
            yield result
    if "3" in cases:
        yield await writes.measure(_make(folder / "writes"), rounds, 1_280 if quick else 6_400)
    if "3b" in cases:
        size = 1_280 if quick else 6_400
        yield await audiobook_writes.measure(_make(folder / "audiobooks"), rounds, size)
    if cases & {"4", "5"}:
        size = 2_000 if quick else 10_000
        for result in await reads.measure(_make(folder / "reads"), rounds, size):
            if result.case in cases:
                yield result
    if "6" in cases:
        size = 4_000 if quick else 20_000
        result = await asyncio.to_thread(
            http.measure, _make(folder / "http"), rounds, size, peers.pocketbase
        )
        peer = "PocketBase, one record by its id, with a token"
        result.note += f". {peers.note(peer, result.peer_ratio is not None)}"
        yield result
    if "6b" in cases:
        place, starts = _make(folder / "schema"), (peers.pocketbase_one, peers.pocketbase_list)
        size = 4_000 if quick else 20_000
        for result in await asyncio.to_thread(schema_records.measure, place, rounds, size, *starts):
            yield result
    if "7" in cases:
        yield await searches.measure(_make(folder / "searches"), rounds, 5_000)
        yield await catalog_searches.measure(_make(folder / "catalog"), rounds, 5_000)
    if "8" in cases:
        size = 2_000 if quick else 10_000
        for layout in (None, "rosey"):
            place = _make(folder / f"sweeps-{layout}")
            for result in await sweeps.measure(place, rounds, size, layout=layout):
                yield result
    if "9" in cases:
        size = 2_000 if quick else 10_000
        place = _make(folder / "history")
        start = peers.pocketbase_create
        yield await asyncio.to_thread(history_events.measure, place, rounds, size, start)
    if "10" in cases:
        size = 2_000 if quick else 10_000
        place = _make(folder / "playback")
        yield await asyncio.to_thread(playback_positions.measure, place, rounds, size)
    if "11" in cases:
        count = 1_000 if quick else 10_000
        for result in await audio_scans.measure(_make(folder / "scans"), min(5, rounds), count):
            yield result
    if "12" in cases:
        yield await asyncio.to_thread(media.measure_watchers, _make(folder / "watchers"), rounds)
    if "13" in cases:
        size = 512 if quick else 2_048
        yield await asyncio.to_thread(media.measure_ranges, _make(folder / "ranges"), rounds, size)
    if "15" in cases:
        size = 8_000 if quick else 40_000
        starts = (peers.pocketbase_one, peers.pocketbase_create)
        place = _make(folder / "workers")
        for result in await asyncio.to_thread(workers.measure, place, rounds, size, *starts):
            yield result
    if "16" in cases:
        size = 100_000 if quick else 1_000_000
        for result in await jetstream_mirrors.measure(_make(folder / "mirrors"), 3, size):
            yield result
    if "17" in cases:
        tenants = 400 if quick else 2_000
        for name in ENGINES:
            place = _make(folder / f"erasures-{name}")
            for result in await erasures.measure(name, place, rounds, tenants):
                yield result
    if "18" in cases:
        count = 5_000 if quick else 20_000
        for text in (230, 0):
            yield await disk_bytes.measure(_make(folder / "bytes"), count, text)
    if "export" in cases:
        size = 100_000 if quick else 1_000_000
        for result in await export_import.measure(_make(folder / "export"), 3, size):
            yield result
    for name in ENGINES:
        if name in cases:
            engine = import_module(f"benchmarks.engines.{name}")
            for result in await engine.measure(_make(folder / name), rounds, quick=quick):
                yield result


async def run(options: argparse.Namespace, folder: Path) -> Report:
    cases = options.cases
    report = Report(platform.platform(), platform.python_version(), [], [], [], [], [])
    if cases & {"1", "2"}:
        rounds = 3 if options.quick else 7
        measured, report.latencies = await plugin_storage.measure(
            _make(folder / "rosey"), rounds, quick=options.quick
        )
        for result in measured:
            if result.case in cases:
                print_result(result)
                report.results.append(result)
        print_latencies(report.latencies)
    async for result in results(cases, folder, quick=options.quick):
        print_result(result)
        report.results.append(result)
    if "growth" in cases:
        sizes = (1_000, 10_000, 100_000) if options.quick else (1_000, 10_000, 100_000, 1_000_000)
        report.growth = await store_growth.measure(_make(folder / "growth"), sizes)
        print_growth(report.growth)
        plugins = _make(folder / "growth-rosey")
        report.plugin_growth = await store_growth.measure(plugins, sizes, layout="rosey")
        print_growth(report.plugin_growth, of=" in the table of plugin storage")
        report.service_growth = await service_growth.measure(plugins, (sizes[0], sizes[-1]))
        print_service_growth(report.service_growth)
    return report


def _make(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="keyhouse-bench-", dir=options.folder) as folder:
        report = asyncio.run(run(options, Path(folder)))
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    drawn = draw(report.results, options.plot)
    chart = f"Chart: {options.plot}" if drawn else "(no matplotlib: no chart)"
    print(f"Numbers: {options.json}   {chart}")


if __name__ == "__main__":
    main()
