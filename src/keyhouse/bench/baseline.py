"""The baseline of a case: the same rows without the store.

On SQLite that is hand-written code on the driver (`baseline_sqlite.py`), elsewhere the engine
alone, which gets the rows that the store would have made.
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from keyhouse.bench.keyspace import WRITERS, Track, rows_by_hand
from keyhouse.engine import Batch, Engine, Put, Span

_decode = msgspec.json.Decoder(Track).decode


class Baseline(Protocol):
    """Each method does the work for all of its arguments. `name` is for people."""

    name: str

    async def put(self, values: Sequence[Track]) -> None:
        """Write each record with its derived rows, 64 at once; durable on return."""
        ...

    async def get(self, ids: Sequence[str]) -> None: ...

    async def scan(self, artist: str) -> int: ...

    async def commit(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Commit each row alone, one after the other, durably."""
        ...

    async def read(self, keys: Sequence[str]) -> None: ...


class EngineBaseline:
    """Sends the rows that the store would make as Batches to the engine, in a separate space."""

    name = "the engine alone"

    def __init__(self, engine: Engine, space: str) -> None:
        self._engine = engine
        self._space = space

    async def put(self, values: Sequence[Track]) -> None:
        pending = iter(values)

        async def writer() -> None:
            for value in pending:
                await self._commit(rows_by_hand(value))

        await asyncio.gather(*(writer() for _ in range(WRITERS)))

    async def get(self, ids: Sequence[str]) -> None:
        for id in ids:
            [row] = await self._engine.read(self._space, (f"t:{id}",))
            assert row is not None
            _decode(row.value)

    async def scan(self, artist: str) -> int:
        prefix, count = f"idx:track:artist:{artist}:", 0
        span, more = Span.prefix(prefix), True
        while more:
            page = await self._engine.scan(self._space, span, limit=500, keys_only=True)
            rows = await self._engine.read(
                self._space, [f"t:{row.key[len(prefix) :]}" for row in page.rows]
            )
            count += len([_decode(row.value) for row in rows if row is not None])
            more = page.more
            span = span.after(page.rows[-1].key) if page.rows else span
        return count

    async def commit(self, rows: Sequence[tuple[str, bytes]]) -> None:
        for row in rows:
            await self._commit([row])

    async def read(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self._engine.read(self._space, (key,))

    async def _commit(self, rows: Sequence[tuple[str, bytes]]) -> None:
        await self._engine.commit(
            self._space, Batch(puts=tuple([Put(key, value) for key, value in rows]))
        )
