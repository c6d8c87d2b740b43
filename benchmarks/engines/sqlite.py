"""SQLite against `apsw`: one transaction writes the rows and the log, with the same `synchronous`.

It runs on the caller's thread: nothing else runs while it syncs.
"""

from itertools import count
from pathlib import Path

from benchmarks.engines.commits import SPACE, Rows, measure_commits, measure_reads
from keyhouse.bench.baseline_sqlite import UPSERT, BareSqlite
from keyhouse.bench.result import Result
from keyhouse.engines.sqlite import SqliteEngine

CHANGES = (
    "CREATE TABLE changes(revision INTEGER PRIMARY KEY, space TEXT NOT NULL, keys TEXT NOT NULL)"
)
LOG = "INSERT INTO changes VALUES(?, ?, ?)"


class Bare:
    """Careful hand-written code on the driver alone."""

    def __init__(self, path: Path) -> None:
        self.database = BareSqlite(path)
        self.database.connection.execute(CHANGES)
        self._revisions = count(1)

    async def read(self, key: str) -> object:
        return self.database.get(SPACE, key)

    async def write(self, group: list[Rows]) -> None:
        numbered = [(next(self._revisions), written) for written in group]
        connection = self.database.connection
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            UPSERT,
            [
                (SPACE, key, value, revision)
                for revision, written in numbered
                for key, value in written
            ],
        )
        connection.executemany(
            LOG,
            [
                (revision, SPACE, '[["' + '","'.join([key for key, _ in rows]) + '"],[]]')
                for revision, rows in numbered
            ],
        )
        connection.execute("COMMIT")


async def measure(folder: Path, rounds: int, *, quick: bool) -> list[Result]:
    engine, bare = SqliteEngine.open(folder / "ours.db"), Bare(folder / "bare.db")
    each = 8 if quick else 30
    results = await measure_commits(
        "sqlite", engine, bare.write, rounds=rounds, alone=100, each=each
    )
    results += await measure_reads("sqlite", engine, bare.read, rounds=rounds, alone=2_000, each=50)
    await engine.close()
    bare.database.close()
    return results
