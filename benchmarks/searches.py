"""Case 7: full-text search in 5,000 records, against FTS5 by hand."""

import random
import string
from pathlib import Path

import apsw
import msgspec

from keyhouse import Record, Schema, Space, Store, open_engine
from keyhouse.bench.comparison import compare
from keyhouse.bench.result import Result
from keyhouse.search import SearchIndex, SearchSchema, SearchSource

GOAL = 0.50
HITS = 50


class Item(msgspec.Struct):
    id: str
    title: str
    categories: list[str]


ITEM = Record(Item, "item:{id}")
SCHEMA = Schema("items", ITEM, space=Space("a catalog"))
SEARCH = SearchSchema(
    "items",
    SearchSource(
        record=ITEM,
        texts=lambda item: {"title": item.title, "categories": item.categories},
        sort=lambda item: item.title,
    ),
    fields={"title": 10.0, "categories": 3.0},
)


def catalog(size: int, chance: random.Random) -> list[Item]:
    letters = string.ascii_lowercase
    words = ["".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(4_000)]
    return [
        Item(
            id=f"{number:06d}",
            title=" ".join(chance.choices(words, k=chance.randint(2, 7))).title(),
            categories=chance.sample(words[:40], 2),
        )
        for number in range(size)
    ]


def queries(items: list[Item], count: int, chance: random.Random) -> list[str]:
    """Return whole words, starts of words, two words, and categories."""
    found = []
    for item in chance.choices(items, k=count):
        words = item.title.split()
        found.append(
            chance.choice(
                [words[0], words[0][:3], " ".join(words[:2]), chance.choice(item.categories)]
            )
        )
    return found


class ByHand:
    """A table of FTS5, and the statements that a program would write for it."""

    def __init__(self, path: Path, items: list[Item]) -> None:
        self._connection = apsw.Connection(str(path))
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(
            "CREATE VIRTUAL TABLE items USING fts5(id UNINDEXED, title, categories,"
            " tokenize='unicode61 remove_diacritics 2')"
        )
        with self._connection:
            self._connection.executemany(
                "INSERT INTO items VALUES (?, ?, ?)",
                [(item.id, item.title, " ".join(item.categories)) for item in items],
            )

    def search(self, query: str) -> tuple[list[str], int]:
        match = " AND ".join(f'"{word}"' for word in query.split()) + "*"
        rows = self._connection.execute(
            "SELECT id, bm25(items, 0, 10, 3) AS score FROM items WHERE items MATCH ?"
            " ORDER BY score, title LIMIT ?",
            (match, HITS),
        ).fetchall()
        total = self._connection.execute(
            "SELECT count(*) FROM items WHERE items MATCH ?", (match,)
        ).fetchone()
        return [str(id) for id, _ in rows], int(total[0]) if total else 0

    def close(self) -> None:
        self._connection.close()


async def measure(folder: Path, rounds: int, size: int, count: int = 400) -> Result:
    chance = random.Random(7)
    items = catalog(size, chance)
    asked = queries(items, count, chance)
    engine = await open_engine(f"sqlite:///{folder}/ours.db")
    store = Store(SCHEMA, engine, "main")
    for item in items:
        entry = await store.put(ITEM, item)
    index = SearchIndex(SEARCH, folder / "search", store)
    await index.search("x", after=entry.revision, timeout_seconds=60)
    by_hand = ByHand(folder / "by_hand.db", items)

    async def ours() -> int:
        for query in asked:
            await index.search(query, limit=HITS, count=True)
        return len(asked)

    async def baseline() -> int:
        for query in asked:
            by_hand.search(query)
        return len(asked)

    for query in asked:
        page = await index.search(query, limit=HITS, count=True)
        found, total = by_hand.search(query)
        assert (page.total, len(page.hits)) == (total, len(found)), query
    measured = await compare({"ours": ours, "baseline": baseline}, rounds=rounds)
    await index.close()
    await engine.close()
    by_hand.close()
    return Result(
        case="7",
        work=f"full-text search in {size:,} records, 50 hits and the total",
        unit="searches/s",
        measurements=list(measured.values()),
        goal=GOAL,
        baseline="FTS5 by hand",
    )
