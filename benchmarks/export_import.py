"""Whole stores: `export` and `import` against a bare dump and a bare load of the same SQLite rows.

The bare dump is one SELECT written as JSON lines; the bare load inserts such lines, as many per
transaction, with the same sync. Neither checks, hashes nor resumes. Memory is the growth of the
process from a tenth of the rows to the end.
"""

import gc
import resource
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path

import msgspec

from keyhouse import open_engine
from keyhouse.bench.baseline_sqlite import BareSqlite
from keyhouse.bench.comparison import Measurement, calibrate
from keyhouse.bench.result import Result
from keyhouse.engine import Batch, Put
from keyhouse.store import export_rows, import_rows

SPACE = "bench"
LOAD_ROWS = 4_000

_DUMP = "SELECT space, key, CAST(value AS BLOB), expires FROM documents ORDER BY space, key"
_INSERT = "INSERT INTO rows(space, key, value, revision, expires) VALUES(?, ?, ?, 1, ?)"


class _Line(msgspec.Struct):
    space: str
    key: str
    value: msgspec.Raw
    expires: int | None = None


async def measure(folder: Path, rounds: int, size: int) -> list[Result]:
    source, memory = folder / "source.db", _Memory()
    await _fill(source, size)
    lines = folder / "ours.jsonl"
    speeds: dict[str, list[float]] = {"export": [], "dump": [], "import": [], "load": []}
    for turn in range(rounds):
        steps: dict[str, Callable[[], Awaitable[None]]] = {
            "export": lambda: _export(source, lines, memory),
            "dump": lambda: _dump(source, folder / "bare.jsonl"),
            "import": lambda turn=turn: _import(lines, folder / f"ours-{turn}.db", memory),  # type: ignore[misc]
            "load": lambda turn=turn: _load(lines, folder / f"bare-{turn}.db"),  # type: ignore[misc]
        }
        for name, work in steps.items():
            calibrate()
            gc.collect()
            start = time.perf_counter()
            await work()
            speeds[name].append(size / (time.perf_counter() - start))
        for path in folder.glob(f"*-{turn}.db*"):
            path.unlink()
    note = (
        f"memory grew by {memory.grown:.1f} MB from a tenth of the rows to the end "
        "(goal: flat, under 20)"
    )
    return [
        _result(
            "export",
            f"export of {size:,} rows, against a bare dump",
            speeds["export"],
            speeds["dump"],
            note,
        ),
        _result(
            "import",
            f"import of {size:,} rows, against a bare load",
            speeds["import"],
            speeds["load"],
            note,
        ),
    ]


def _result(case: str, work: str, ours: list[float], baseline: list[float], note: str) -> Result:
    measurements = [
        Measurement(name, sorted(each)[len(each) // 2], each)
        for name, each in (("ours", ours), ("baseline", baseline))
    ]
    return Result(
        case=case, work=work, unit="rows/s", measurements=measurements, goal=0.40, note=note
    )


async def _fill(path: Path, size: int) -> None:
    engine = await open_engine(f"sqlite:///{path}")
    for start in range(0, size, 5_000):
        puts = [
            Put(f"item:{number:08d}", b'{"number":%d,"text":"%b"}' % (number, b"x" * 80))
            for number in range(start, min(start + 5_000, size))
        ]
        await engine.commit(SPACE, Batch(puts=tuple(puts)))
    await engine.close()


async def _export(source: Path, lines: Path, memory: "_Memory") -> None:
    engine = await open_engine(f"sqlite:///{source}")
    with lines.open("wb") as file:
        await export_rows(engine, file.write, on_progress=memory.sample)
    await engine.close()


async def _dump(source: Path, lines: Path) -> None:
    bare = BareSqlite(source)
    encode = msgspec.json.Encoder().encode_lines
    rows = (
        _Line(space, key, msgspec.Raw(value), expires)
        for space, key, value, expires in bare.connection.execute(_DUMP)
    )
    with lines.open("wb") as file:
        while some := list(islice(rows, 2_000)):
            file.write(encode(some))
    bare.close()


async def _import(lines: Path, target: Path, memory: "_Memory") -> None:
    engine = await open_engine(f"sqlite:///{target}")
    with lines.open("rb") as file:
        await import_rows(engine, file, on_progress=memory.sample)
    await engine.close()


async def _load(lines: Path, target: Path) -> None:
    bare = BareSqlite(target)
    decode = msgspec.json.Decoder(_Line).decode_lines
    with lines.open("rb") as file:
        rows = (line for line in file if not line.startswith(b'{"rows"'))
        while some := list(islice(rows, LOAD_ROWS)):
            parsed = [
                (line.space, line.key, bytes(line.value), line.expires)
                for line in decode(b"".join(some))
            ]
            bare.connection.execute("BEGIN IMMEDIATE")
            bare.connection.executemany(_INSERT, parsed)
            bare.connection.execute("COMMIT")
    bare.close()


class _Memory:
    """Growth of the peak memory of the process after a warm-up."""

    def __init__(self) -> None:
        self._warm = 0.0
        self._samples = 0

    def sample(self, rows: int) -> None:
        self._samples += 1
        if self._samples == 10:
            self._warm = _peak_mb()

    @property
    def grown(self) -> float:
        return _peak_mb() - self._warm if self._warm else 0.0


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
