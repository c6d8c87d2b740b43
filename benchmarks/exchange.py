"""Whole stores: `export` and `import` against a bare dump and a bare load of the same rows on the same engine, SQLite.

The bare dump is one SELECT whose rows are written as JSON lines; the bare load reads such lines and inserts them, as many in
a transaction, with the same sync. Neither checks, hashes, or can be resumed. Memory: what the process holds more at the end
than after a tenth of the rows.
"""

import gc
import resource
import time
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path

import msgspec

from keyhouse import open_engine
from keyhouse.bench.contest import Result, calibrate
from keyhouse.bench.figure import Figure
from keyhouse.bench.hand import Hand
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


async def measure(folder: Path, rounds: int, size: int) -> list[Figure]:
    source, memory = folder / "source.db", _Memory()
    await _fill(source, size)
    lines = folder / "ours.jsonl"
    spent: dict[str, list[float]] = {"export": [], "dump": [], "import": [], "load": []}
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
            spent[name].append(size / (time.perf_counter() - start))
        for path in folder.glob(f"*-{turn}.db*"):
            path.unlink()
    note = f"memory grew by {memory.grown:.1f} MB from a tenth of the rows to the end (goal: flat, under 20)"
    return [
        _figure(
            "export",
            f"export of {size:,} rows, against a bare dump",
            spent["export"],
            spent["dump"],
            note,
        ),
        _figure(
            "import",
            f"import of {size:,} rows, against a bare load",
            spent["import"],
            spent["load"],
            note,
        ),
    ]


def _figure(row: str, work: str, ours: list[float], limit: list[float], note: str) -> Figure:
    results = [
        Result(name, sorted(found)[len(found) // 2], found)
        for name, found in (("ours", ours), ("limit", limit))
    ]
    return Figure(row=row, work=work, unit="rows/s", results=results, goal=0.40, note=note)


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
        await export_rows(engine, file.write, on_progress=memory.look)
    await engine.close()


async def _dump(source: Path, lines: Path) -> None:
    hand = Hand(source)
    encode = msgspec.json.Encoder().encode_lines
    found = (
        _Line(space, key, msgspec.Raw(value), expires)
        for space, key, value, expires in hand.connection.execute(_DUMP)
    )
    with lines.open("wb") as file:
        while some := list(islice(found, 2_000)):
            file.write(encode(some))
    hand.close()


async def _import(lines: Path, target: Path, memory: "_Memory") -> None:
    engine = await open_engine(f"sqlite:///{target}")
    with lines.open("rb") as file:
        await import_rows(engine, file, on_progress=memory.look)
    await engine.close()


async def _load(lines: Path, target: Path) -> None:
    hand = Hand(target)
    decode = msgspec.json.Decoder(_Line).decode_lines
    with lines.open("rb") as file:
        rows = (line for line in file if not line.startswith(b'{"rows"'))
        while some := list(islice(rows, LOAD_ROWS)):
            found = [
                (line.space, line.key, bytes(line.value), line.expires)
                for line in decode(b"".join(some))
            ]
            hand.connection.execute("BEGIN IMMEDIATE")
            hand.connection.executemany(_INSERT, found)
            hand.connection.execute("COMMIT")
    hand.close()


class _Memory:
    """The most that the process ever held, once it has warmed up, and what it held more later."""

    def __init__(self) -> None:
        self._warm = 0.0
        self._looks = 0

    def look(self, rows: int) -> None:
        self._looks += 1
        if self._looks == 10:
            self._warm = _most()

    @property
    def grown(self) -> float:
        return _most() - self._warm if self._warm else 0.0


def _most() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
