"""Case 18: bytes on disk of a record with three derived rows, against the same rows by hand.

Records per megabyte of the file, after a checkpoint: of about 300 bytes, and of 70. `no log` has
the log of changes pruned, which otherwise keeps the keys of the last 100,000 changes, and the file
rewritten.
"""

import asyncio
from contextlib import closing
from pathlib import Path

import apsw
import msgspec

from keyhouse import Index, Record, Schema, Space, Store, SystemClock, UlidSource, open_engine
from keyhouse.bench.baseline_sqlite import BareSqlite
from keyhouse.bench.comparison import Measurement
from keyhouse.bench.keyspace import SPACE
from keyhouse.bench.result import Result


class Item(msgspec.Struct, kw_only=True):
    id: str
    kind: str
    year: int
    text: str


ITEM = Record(
    Item,
    "i:{id:ulid}",
    Index("idx:kind:{kind}:{id:ulid}"),
    Index("idx:year:{year:04d}:{id:ulid}"),
    Index("idx:shelf:{kind}:{year:04d}:{id:ulid}"),
)
SCHEMA = Schema("items", ITEM, space=Space("a library"))


def _by_hand(item: Item) -> list[tuple[str, bytes]]:
    return [
        (f"i:{item.id}", msgspec.json.encode(item)),
        (f"idx:kind:{item.kind}:{item.id}", b"1"),
        (f"idx:year:{item.year:04d}:{item.id}", b"1"),
        (f"idx:shelf:{item.kind}:{item.year:04d}:{item.id}", b"1"),
    ]


async def measure(folder: Path, count: int, text: int) -> Result:
    ids = UlidSource(SystemClock())
    items = [
        Item(id=ids.new(), kind=f"k{number % 50}", year=1950 + number % 70, text="t" * text)
        for number in range(count)
    ]
    ours, bare = folder / f"ours-{text}.db", folder / f"bare-{text}.db"
    async with open_engine(f"sqlite:///{ours}") as engine:
        store = Store(SCHEMA, engine, SPACE)
        await asyncio.gather(*(store.put(ITEM, item) for item in items))
    table = BareSqlite(bare)
    for start in range(0, count, 100):
        table.put(SPACE, [row for item in items[start : start + 100] for row in _by_hand(item)], 1)
    table.close()
    sizes = {"ours": ours.stat().st_size, "baseline": bare.stat().st_size}
    async with open_engine(f"sqlite:///{ours}?changes_kept=0") as engine:
        await engine.sweep(limit=1)
    with closing(apsw.Connection(str(ours))) as connection:
        connection.execute("VACUUM")
    sizes["no log"] = ours.stat().st_size
    each = {name: size / count for name, size in sizes.items()}
    value = len(_by_hand(items[0])[0][1])
    return Result(
        case="18",
        work=f"a record of {value} bytes and three derived rows on disk, and the same rows by hand",
        unit="records/MB",
        measurements=[Measurement(name, 1e6 / size, [1e6 / size]) for name, size in each.items()],
        goal=0.67,
        note="bytes a record: " + ", ".join(f"{name} {size:,.0f}" for name, size in each.items()),
    )
