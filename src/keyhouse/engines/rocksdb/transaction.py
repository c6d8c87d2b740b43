"""What one group of commits writes, gathered in memory: batches, sweeping, pruning. Knows nothing of threads or waiting.

Nothing is being written while a transaction is prepared, so the database holds exactly the rows before it; on top lies what
the batches before this one in the group have done. A batch is encoded as a whole before any of it is added: whatever refuses
it, a check, a counter, a value that can't be kept, has nothing to undo and harms no other.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from rocksdict import Rdict, WriteBatch

from keyhouse.counter import sum_of
from keyhouse.engine import Add, Batch, Check, Put
from keyhouse.engines.rocksdb.database import Database
from keyhouse.engines.rocksdb.encoding import (
    APPLIED,
    CHANGES,
    EXPIRY,
    HEAD,
    HEAD_BYTES,
    IDS,
    IDS_BY_TIME,
    NEVER,
    CommittedKeys,
    encode_keys,
    moment,
    moment_of,
    number,
    prefix_of,
    split_key,
)
from keyhouse.engines.rocksdb.error_map import translate
from keyhouse.engines.rocksdb.iterators import bounded, steps
from keyhouse.limits import BATCH_ID_KEPT_SECONDS

_head = HEAD.pack
_head_of = HEAD.unpack_from


class SweepResult(NamedTuple):
    """How many rows went, and whether more may be due."""

    rows: int
    more: bool


class RocksdbTransaction:
    """One group at one moment `now`. `commits` is what it did, for the watches; `oldest`: of the changes that are kept."""

    __slots__ = (
        "_database",
        "_families",
        "_ids",
        "_overlay",
        "batch",
        "commits",
        "now",
        "oldest",
        "revision",
    )

    def __init__(self, database: Database, revision: int, oldest: int, now: int) -> None:
        self._database = database
        self._families = database.families
        self._overlay: dict[
            bytes, bytes | None
        ] = {}  # rows as they are now, those that were looked at or written
        self._ids: dict[bytes, int] = {}
        self.batch = WriteBatch(raw_mode=True)
        self.commits: list[tuple[int, CommittedKeys]] = []
        self.revision = revision
        self.oldest = oldest
        self.now = now

    @property
    def rows(self) -> Collection[bytes]:
        """The keys of all rows that it writes, and of some that it only looked at."""
        return self._overlay.keys()

    def apply(self, space: str, batch: Batch) -> int | None:
        prefix = prefix_of(space)
        if batch.id is not None and (revision := self._applied(prefix, batch.id)) is not None:
            return revision
        if batch.checks and not self._holds(prefix, batch.checks):
            return None
        puts = [*batch.puts, *self._sums(prefix, batch.adds)] if batch.adds else batch.puts
        if not puts and not batch.deletes:
            return self.revision
        revision = self.revision + 1
        rows, due = self._encoded(prefix, puts, revision)
        deleted = [prefix + key.encode() for key in batch.deletes]
        keys = CommittedKeys(space, [put.key for put in puts], batch.deletes)
        change = encode_keys(keys)
        self._write(rows, due, deleted)
        if batch.id is not None:
            self._remember(prefix, batch.id, revision)
        self._record(keys, change)
        return revision

    def sweep(self, limit: int, looks: int) -> SweepResult:
        """Delete up to `limit` expired rows, as one change of each space they were in; look at no more than `looks`. It is
        alone in its transaction, so the database is all there is to look at."""
        gone: dict[str, list[str]] = {}
        count = 0
        found = self._due(self._database.expiry, b"", self.now, looks)
        for due in found:
            if count == limit:
                break
            row_key = due[8:]
            data = self._stored(row_key)  # and so among the `rows`
            self.batch.delete(due, self._families[EXPIRY])
            if data is not None and _head_of(data)[1] == moment_of(due):
                self.batch.delete(row_key)
                space, key = split_key(row_key)
                gone.setdefault(space, []).append(key)
                count += 1
        for space, keys in gone.items():
            swept = CommittedKeys(space, (), keys)
            self._record(swept, encode_keys(swept))
        return SweepResult(count, len(found) == looks)

    def prune(self, kept: int, looks: int) -> bool:
        """Drop the changes beyond the newest `kept`, and up to `looks` forgotten batch ids; whether more may be left."""
        oldest = self.revision - max(kept, 1) + 1
        if oldest > self.oldest:
            self.batch.delete_range(number(self.oldest), number(oldest), self._families[CHANGES])
            self.oldest = oldest
        applied = self._families[APPLIED]
        found = self._due(self._database.applied, IDS_BY_TIME, self._forgotten(), looks)
        for due in found:
            name = IDS + due[9:]
            data = self._got(self._database.applied, name)
            if data is not None and _head_of(data)[1] == moment_of(due[1:]):
                self.batch.delete(name, applied)
            self.batch.delete(due, applied)
        return len(found) == looks

    def _applied(self, prefix: bytes, batch_id: str) -> int | None:
        name = IDS + prefix + batch_id.encode()
        if name in self._ids:
            return self._ids[name]
        data = self._got(self._database.applied, name)
        if data is None:
            return None
        revision, at = _head_of(data)
        return int(revision) if at > self._forgotten() else None

    def _forgotten(self) -> int:
        return self.now - BATCH_ID_KEPT_SECONDS * 1_000

    def _holds(self, prefix: bytes, checks: Iterable[Check]) -> bool:
        for check in checks:
            data = self._stored(prefix + check.key.encode())
            if data is None:
                found = None
            else:
                revision, expires = _head_of(data)
                found = revision if expires > self.now else None
            if found != check.revision:
                return False
        return True

    def _sums(self, prefix: bytes, adds: Iterable[Add]) -> list[Put]:
        sums = []
        for add in adds:
            value, kept = None, None
            data = self._stored(prefix + add.key.encode())
            if data is not None:
                _, expires = _head_of(data)
                if expires > self.now:
                    value, kept = data[HEAD_BYTES:], None if expires == NEVER else expires
            sums.append(Put(add.key, sum_of(add.key, value, add.by), kept))
        return sums

    def _encoded(
        self, prefix: bytes, puts: Sequence[Put], revision: int
    ) -> tuple[dict[bytes, bytes], list[tuple[int, bytes]]]:
        """The rows, and the expiries of those that have one. Such a row takes the place of the one in `expiry` that it had
        before, so that one is looked up: else a row whose life is prolonged a thousand times would leave a thousand."""
        rows: dict[bytes, bytes] = {}
        due: list[tuple[int, bytes]] = []
        endless = _head(revision, NEVER)
        for put in puts:
            key = prefix + put.key.encode()
            if put.expires is None:
                rows[key] = endless + put.value
            else:
                rows[key] = _head(revision, put.expires) + put.value
                due.append((put.expires, key))
                self._stored(key)
        return rows, due

    def _write(
        self, rows: dict[bytes, bytes], due: list[tuple[int, bytes]], deleted: list[bytes]
    ) -> None:
        batch, known = self.batch, self._overlay
        if not known.keys().isdisjoint(rows):
            self._expire_no_more(rows)
        self._expire_no_more(deleted)
        for expires, key in due:
            batch.put(moment(expires) + key, b"", self._families[EXPIRY])
        for key, data in rows.items():
            batch[key] = data
        known.update(rows)
        for key in deleted:
            del batch[key]
            known[key] = None

    def _expire_no_more(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if (old := self._overlay.get(key)) is not None and (
                expires := _head_of(old)[1]
            ) != NEVER:
                self.batch.delete(moment(expires) + key, self._families[EXPIRY])

    def _remember(self, prefix: bytes, batch_id: str, revision: int) -> None:
        named = prefix + batch_id.encode()
        applied = self._families[APPLIED]
        self.batch.put(IDS + named, _head(revision, self.now), applied)
        self.batch.put(IDS_BY_TIME + moment(self.now) + named, b"", applied)
        self._ids[IDS + named] = revision

    def _record(self, keys: CommittedKeys, change: bytes) -> None:
        self.revision += 1
        self.batch.put(number(self.revision), change, self._families[CHANGES])
        self.commits.append((self.revision, keys))

    def _stored(self, key: bytes) -> bytes | None:
        if key in self._overlay:
            return self._overlay[key]
        data = self._overlay[key] = self._got(self._database.rows, key)
        return data

    def _got(self, family: Rdict, key: bytes) -> bytes | None:
        try:
            data: bytes | None = family.get(key)
        except Exception as error:
            raise translate(error, self._database.folder) from error
        return data

    def _due(self, family: Rdict, start: bytes, until: int, looks: int) -> list[bytes]:
        """The keys of a family that begin with `start` and a time up to `until`, the earliest first."""
        reading = bounded(start + moment(until + 1))
        found = islice(steps(family.iter(reading), start, self._database.folder), looks)
        return [key for key, _ in found]
