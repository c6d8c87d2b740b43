"""The SQLite baseline: the same rows through `apsw` alone, with the engine's own settings."""

import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

import apsw
import msgspec

from keyhouse.bench.keyspace import SPACE, WRITERS, Track, rows_by_hand

UPSERT = (
    "INSERT INTO rows(space, key, value, revision, expires) VALUES(?, ?, ?, ?, NULL) "
    "ON CONFLICT(space, key) DO UPDATE SET value=excluded.value, revision=excluded.revision, "
    "expires=NULL"
)
GET = "SELECT value FROM rows WHERE space = ? AND key = ?"
RANGE = "SELECT key FROM rows WHERE space = ? AND key >= ? AND key < ? ORDER BY key"

_decode = msgspec.json.Decoder(Track).decode


class BareSqlite:
    """A connection with the engine's table, WAL and full sync."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", 2)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS rows(space TEXT NOT NULL, key TEXT NOT NULL, "
            "value BLOB NOT NULL, revision INTEGER NOT NULL, expires INTEGER, "
            "PRIMARY KEY(space, key)) WITHOUT ROWID"
        )
        self.connection.execute(
            "CREATE INDEX IF NOT EXISTS rows_expires ON rows(expires) WHERE expires IS NOT NULL"
        )

    def put(self, space: str, rows: Iterable[tuple[str, bytes]], revision: int) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany(UPSERT, [(space, key, value, revision) for key, value in rows])
        self.connection.execute("COMMIT")

    def get(self, space: str, key: str) -> bytes | None:
        for (value,) in self.connection.execute(GET, (space, key)):
            return bytes(value) if not isinstance(value, str) else value.encode()
        return None

    def close(self) -> None:
        self.connection.close()


class SqliteBaseline:
    """Implements Baseline on a bare connection: it reads, checks and logs nothing."""

    name = "apsw by hand"

    def __init__(self, bare: BareSqlite) -> None:
        self.bare = bare
        self._revisions = count(1)

    async def put(self, values: Sequence[Track]) -> None:
        for start in range(0, len(values), WRITERS):
            group = values[start : start + WRITERS]
            self.bare.put(
                SPACE,
                [row for value in group for row in rows_by_hand(value)],
                next(self._revisions),
            )

    async def get(self, ids: Sequence[str]) -> None:
        execute = self.bare.connection.execute
        for id in ids:
            _decode(execute(GET, (SPACE, f"t:{id}")).get)

    async def scan(self, artist: str) -> int:
        execute, prefix = self.bare.connection.execute, f"idx:track:artist:{artist}:"
        keys = execute(RANGE, (SPACE, prefix, prefix[:-1] + ";")).fetchall()
        return len(
            [_decode(execute(GET, (SPACE, "t:" + str(key)[len(prefix) :])).get) for (key,) in keys]
        )

    async def commit(self, rows: Sequence[tuple[str, bytes]]) -> None:
        for row in rows:
            self.bare.put(SPACE, [row], next(self._revisions))

    async def read(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.bare.get(SPACE, key)

    def sweep(self, turn: int, size: int) -> float:
        """Insert expired rows and return how many per second one DELETE removes."""
        connection = self.bare.connection
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
