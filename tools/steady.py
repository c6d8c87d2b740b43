"""`python -m tools.steady`: run the tests often, alone, beside a load and in random order.

    make steady                               # 10 runs alone, then 5 beside 4 busy processes
    make steady ARGS='--alone 2 --loaded 1 tests/http'

Each second run is in random order, by a seed that is printed (`TEST_ORDER=SEED`). The result is
a Markdown table on standard output; the output of each run is in `build/steady`. Exits with 1 if a
test failed in any run.
"""

import argparse
import os
import random
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BUSY = 4
"""Processes that compute beside a loaded run."""

FOLDER = Path("build") / "steady"
HEADER = (
    "| run | beside it | order | seconds | CPU seconds | result | failed |\n"
    "|---:|---|---|---:|---:|---|---|"
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_SUMMARY = re.compile(r"^=* ?(\d+ .+?) in [\d.]+s\b.*$", re.MULTILINE)


class Run(NamedTuple):
    number: int
    busy: int
    order: int | None
    seconds: float
    cpu_seconds: float
    code: int
    output: str

    @property
    def row(self) -> str:
        summaries = _SUMMARY.findall(self.output)
        cells = (
            str(self.number),
            f"{self.busy} busy processes" if self.busy else "nothing",
            "as collected" if self.order is None else f"TEST_ORDER={self.order}",
            f"{self.seconds:.0f}",
            f"{self.cpu_seconds:.0f}",
            summaries[-1] if summaries else f"exit code {self.code}",
            "<br>".join(f"`{name}`" for name in failures(self.output)),
        )
        return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def failures(output: str) -> list[str]:
    """Return the tests that failed, by pytest's summary."""
    return list(dict.fromkeys(_FAILED.findall(output)))


def plan(alone: int, loaded: int, seed: int) -> list[tuple[int, int | None]]:
    """Return the busy processes and the order of each run."""
    seeds = random.Random(seed)
    return [
        (0 if number < alone else BUSY, seeds.randrange(1, 10**6) if number % 2 else None)
        for number in range(alone + loaded)
    ]


def run(number: int, busy: int, order: int | None, command: Sequence[str]) -> Run:
    environment = os.environ | {"TEST_ORDER": "" if order is None else str(order)}
    cpu, start = _cpu_seconds(), time.monotonic()
    with busy_processes(busy):
        ended = subprocess.run(
            command,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        seconds, cpu = time.monotonic() - start, _cpu_seconds() - cpu
    return Run(number, busy, order, seconds, cpu, ended.returncode, ended.stdout)


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _cpu_seconds() -> float:
    """Return what ended children have used. Busy processes are not waited for yet."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.steady")
    parser.add_argument("--alone", type=int, default=10, help="runs with nothing beside them")
    parser.add_argument("--loaded", type=int, default=5, help=f"runs beside {BUSY} busy processes")
    parser.add_argument("--jobs", default="4", help="test processes of a run")
    parser.add_argument("--mark", default="not extra", help="tests to run, as `pytest -m`")
    parser.add_argument("--seed", type=int, help="selects the random orders")
    given, rest = parser.parse_known_args(arguments)
    seed = random.randrange(10**6) if given.seed is None else given.seed
    print(f"`--seed {seed}`, {os.cpu_count()} cores\n\n{HEADER}", flush=True)
    parallel = ["-n", given.jobs, "--dist", "worksteal"] if given.jobs != "0" else ["-n", "0"]
    command = [sys.executable, "-m", "pytest", "-q", *parallel, "-m", given.mark, *rest]
    FOLDER.mkdir(parents=True, exist_ok=True)
    code = 0
    for number, (busy, order) in enumerate(plan(given.alone, given.loaded, seed), 1):
        ended = run(number, busy, order, command)
        (FOLDER / f"{number:02}.txt").write_text(ended.output)
        print(ended.row, flush=True)
        code = code or int(ended.code != 0)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
