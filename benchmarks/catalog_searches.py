"""Case 7 playlist: search in the catalog of the playlist service, against FTS5 by hand.

Both return the items of a page with all their members, and the number of all that match.
"""

import asyncio
import random
from functools import partial
from pathlib import Path
from time import perf_counter

import apsw
import msgspec

from benchmarks.searches import GOAL, HITS, catalog, queries
from keyhouse.bench.comparison import compare, percentile
from keyhouse.bench.result import Result
from keyhouse_playlist.catalog.tables import (
    CatalogItem,
    CatalogReader,
    SnapshotInfo,
    build_catalog,
)

_decode = msgspec.json.Decoder(list[str]).decode


class ItemsByHand:
    """A table of items, a table of FTS5, and the statements that a program would write for them."""

    def __init__(self, path: Path, items: list[CatalogItem]) -> None:
        self._connection = connection = apsw.Connection(str(path))
        connection.execute(
            "CREATE TABLE items(id INTEGER PRIMARY KEY, video_id TEXT, title TEXT, categories TEXT,"
            " manifest_url TEXT, duration INTEGER, thumbnail TEXT);"
            " CREATE VIRTUAL TABLE words USING fts5(title, categories,"
            " tokenize='unicode61 remove_diacritics 2')"
        )
        with connection:
            for number, item in enumerate(items):
                categories = msgspec.json.encode(item.categories).decode()
                row = (item.video_id, item.title, categories, item.manifest_url)
                connection.execute(
                    "INSERT INTO items VALUES (?, ?, ?, ?, ?, NULL, NULL)", (number, *row)
                )
                connection.execute(
                    "INSERT INTO words(rowid, title, categories) VALUES (?, ?, ?)",
                    (number, item.title, " ".join(item.categories)),
                )

    def search(self, query: str) -> tuple[list[CatalogItem], int]:
        match = " AND ".join(f'"{word}"' for word in query.split()) + "*"
        rows = self._connection.execute(
            "SELECT items.* FROM words JOIN items ON items.id = words.rowid WHERE words MATCH ?"
            " ORDER BY bm25(words, 10, 1), items.title LIMIT ?",
            (match, HITS),
        ).fetchall()
        found = [
            CatalogItem(
                video_id=str(video),
                title=str(title),
                categories=_decode(str(categories)),
                manifest_url=str(manifest),
                duration_seconds=duration,  # type: ignore[arg-type]  # a column of integers
                thumbnail_url=thumbnail,  # type: ignore[arg-type]
            )
            for _, video, title, categories, manifest, duration, thumbnail in rows
        ]
        total = self._connection.execute(
            "SELECT count(*) FROM words WHERE words MATCH ?", (match,)
        ).get
        return found, int(total)

    def close(self) -> None:
        self._connection.close()


async def measure(folder: Path, rounds: int, size: int, count: int = 400) -> Result:
    chance = random.Random(7)
    made = catalog(size, chance)
    asked = queries(made, count, chance)
    items = [
        CatalogItem(
            video_id=each.id,
            title=each.title,
            categories=each.categories,
            manifest_url=f"https://media.example/{each.id}.json",
        )
        for each in made
    ]
    info = SnapshotInfo(snapshot_id="s1", source="bench", created_at="2026-01-18T12:00:00Z")
    reader = CatalogReader(build_catalog(folder, info, items))
    by_hand = ItemsByHand(folder / "by_hand.db", items)
    seconds: list[float] = []

    async def ours() -> int:
        """Search on threads, as the service does."""
        for query in asked:
            start = perf_counter()
            await asyncio.to_thread(partial(reader.search, query, limit=HITS))
            seconds.append(perf_counter() - start)
        return len(asked)

    async def baseline() -> int:
        for query in asked:
            await asyncio.to_thread(by_hand.search, query)
        return len(asked)

    for query in asked:
        found, total = by_hand.search(query)
        page = reader.search(query, limit=HITS)
        assert (page.total, len(page.items)) == (total, len(found)), query
    measured = await compare({"ours": ours, "baseline": baseline}, rounds=rounds)
    reader.close()
    by_hand.close()
    return Result(
        case="7 playlist",
        work=f"search in a catalog of {size:,} items, 50 items and the total",
        unit="searches/s",
        measurements=list(measured.values()),
        goal=GOAL,
        baseline="FTS5 by hand",
        note=f"p95 {percentile(seconds, 95) * 1_000:.1f} ms (goal: below 5)",
    )
