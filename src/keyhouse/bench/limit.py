"""The limit of each contest: the same rows with nothing in between. By hand, where the engine's driver is a library that can
be called here; else the engine alone, which is given the rows that the store would have made."""

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from typing import Final, Protocol

import msgspec

from keyhouse.bench.hand import GET, RANGE, Hand
from keyhouse.bench.library import SPACE, Track, rows_by_hand
from keyhouse.engine import Batch, Engine, Put, Span

WRITERS: Final = 64

_decode = msgspec.json.Decoder(Track).decode


class Limit(Protocol):
    """`name` is for people. Each does the work for all that it is given, and returns when that is done."""

    name: str

    async def put(self, values: Sequence[Track]) -> None:
        """Each with its derived rows, 64 at once, on disk when it returns."""
        ...

    async def get(self, ids: Sequence[str]) -> None: ...

    async def scan(self, artist: str) -> int: ...

    async def commit(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """Each row alone, one after the other, on disk."""
        ...

    async def read(self, keys: Sequence[str]) -> None: ...


class ByHand:
    """SQLite through `apsw`, with the engine's own settings. It reads nothing, checks nothing, and keeps no log."""

    name = "apsw by hand"

    def __init__(self, hand: Hand) -> None:
        self.hand = hand
        self._revisions = count(1)

    async def put(self, values: Sequence[Track]) -> None:
        for start in range(0, len(values), WRITERS):
            group = values[start : start + WRITERS]
            self.hand.put(
                SPACE,
                [row for value in group for row in rows_by_hand(value)],
                next(self._revisions),
            )

    async def get(self, ids: Sequence[str]) -> None:
        execute = self.hand.connection.execute
        for id in ids:
            _decode(execute(GET, (SPACE, f"t:{id}")).get)

    async def scan(self, artist: str) -> int:
        execute, prefix = self.hand.connection.execute, f"idx:track:artist:{artist}:"
        keys = execute(RANGE, (SPACE, prefix, prefix[:-1] + ";")).fetchall()
        return len(
            [_decode(execute(GET, (SPACE, "t:" + str(key)[len(prefix) :])).get) for (key,) in keys]
        )

    async def commit(self, rows: Sequence[tuple[str, bytes]]) -> None:
        for row in rows:
            self.hand.put(SPACE, [row], next(self._revisions))

    async def read(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.hand.get(SPACE, key)

    def sweep(self, turn: int, size: int) -> float:
        """Fill in rows that have expired; how many in a second one DELETE takes away."""
        connection = self.hand.connection
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "INSERT INTO rows VALUES (?, ?, ?, 1, 10)",
            [
                (SPACE, f"note:{turn}-{number}", b'{"text":"' + b"x" * 100 + b'"}')
                for number in range(size)
            ],
        )
        connection.execute("COMMIT")
        start = time.perf_counter()
        connection.execute("DELETE FROM rows WHERE expires <= ?", (20,))
        return size / (time.perf_counter() - start)


class EngineAlone:
    """The rows that the store would make, as Batches straight to the engine, in a space of their own."""

    name = "the engine alone"

    def __init__(self, engine: Engine, space: str) -> None:
        self._engine = engine
        self._space = space

    async def put(self, values: Sequence[Track]) -> None:
        left = iter(values)

        async def writer() -> None:
            for value in left:
                await self._commit(rows_by_hand(value))

        await asyncio.gather(*(writer() for _ in range(WRITERS)))

    async def get(self, ids: Sequence[str]) -> None:
        for id in ids:
            [row] = await self._engine.read(self._space, (f"t:{id}",))
            assert row is not None
            _decode(row.value)

    async def scan(self, artist: str) -> int:
        prefix, seen = f"idx:track:artist:{artist}:", 0
        span, more = Span.prefix(prefix), True
        while more:
            page = await self._engine.scan(self._space, span, limit=500, keys_only=True)
            rows = await self._engine.read(
                self._space, [f"t:{row.key[len(prefix) :]}" for row in page.rows]
            )
            seen += len([_decode(row.value) for row in rows if row is not None])
            more = page.more
            span = span.after(page.rows[-1].key) if page.rows else span
        return seen

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
