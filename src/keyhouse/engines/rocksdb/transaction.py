"""The writes of one group, gathered in memory: batches, sweeping, pruning. Knows no threads.

Nothing is in flight while a transaction is executed, so the database holds exactly the rows before
it; an overlay holds the effects of earlier batches of the group. A batch is encoded as a whole
before any of it is added: whatever rejects it, a check, a counter, an invalid value, has nothing to
undo and affects no other batch.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from rocksdict import Rdict, WriteBatch

from keyhouse.engine import Batch, Check, Put
from keyhouse.engines.batch_plan import Writes, evaluate, ids_expired_at
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
    decode_keys,
    encode_keys,
    moment,
    moment_of,
    number,
    prefix_of,
    split_key,
)
from keyhouse.engines.rocksdb.error_map import translate
from keyhouse.engines.rocksdb.iterators import bounded, steps

_head = HEAD.pack
_head_of = HEAD.unpack_from


class SweepResult(NamedTuple):
    """Rows removed, and True if more may be due."""

    rows: int
    more: bool


class RocksdbTransaction:
    """One group at the time `now`.

    `commits`: its changes, for the watches. `oldest`: the oldest revision in the log of changes.
    """

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
        self._overlay: dict[bytes, bytes | None] = {}  # rows read or written, as they are now
        self._ids: dict[bytes, int] = {}
        self.batch = WriteBatch(raw_mode=True)
        self.commits: list[tuple[int, CommittedKeys]] = []
        self.revision = revision
        self.oldest = oldest
        self.now = now

    @property
    def rows(self) -> Collection[bytes]:
        """Return the keys of all rows that it writes, and of some that it only read."""
        return self._overlay.keys()

    def apply(self, space: str, batch: Batch) -> int | None:
        writes = evaluate(space, batch, self)
        if not isinstance(writes, Writes):
            return writes
        prefix, revision = prefix_of(space), self.revision + 1
        rows, due = self._encoded(prefix, writes.puts, revision)
        deleted = [prefix + key.encode() for key in writes.deletes]
        keys = CommittedKeys(space, [put.key for put in writes.puts], writes.deletes)
        change = encode_keys(keys)
        self._write(rows, due, deleted)
        if batch.id is not None:
            self._put_id(prefix, batch.id, revision)
        self._record(keys, change)
        return revision

    # The state that a batch finds: see `batch_plan`

    def applied(self, space: str, batch_id: str) -> int | None:
        name = IDS + prefix_of(space) + batch_id.encode()
        if name in self._ids:
            return self._ids[name]
        data = self._got(self._database.applied, name)
        if data is None:
            return None
        revision, at = _head_of(data)
        return int(revision) if at > ids_expired_at(self.now) else None

    def holds(self, space: str, check: Check) -> bool:
        data = self._stored(prefix_of(space) + check.key.encode())
        if data is None:
            return check.revision is None
        revision: int
        revision, expires = _head_of(data)
        return check.revision == (revision if expires > self.now else None)

    def counter(self, space: str, key: str) -> tuple[bytes | None, int | None]:
        data = self._stored(prefix_of(space) + key.encode())
        if data is None:
            return None, None
        _, expires = _head_of(data)
        if expires <= self.now:
            return None, None
        return data[HEAD_BYTES:], None if expires == NEVER else expires

    def sweep(self, limit: int, examined: int) -> SweepResult:
        """Delete up to `limit` expired rows, as one change of each space, of the first `examined`.

        It is alone in its transaction, so the overlay is empty.
        """
        removed: dict[str, list[str]] = {}
        count = 0
        due_keys = self._due(self._database.expiry, b"", self.now, examined)
        for due in due_keys:
            if count == limit:
                break
            row_key = due[8:]
            data = self._stored(row_key)  # adds it to `rows`
            self.batch.delete(due, self._families[EXPIRY])
            if data is not None and _head_of(data)[1] == moment_of(due):
                self.batch.delete(row_key)
                space, key = split_key(row_key)
                removed.setdefault(space, []).append(key)
                count += 1
        for space, keys in removed.items():
            swept = CommittedKeys(space, (), keys)
            self._record(swept, encode_keys(swept))
        return SweepResult(count, len(due_keys) == examined)

    def prune(self, last: int, examined: int) -> bool:
        """Delete the changes up to `last` but the newest, and up to `examined` expired batch ids.

        Return True if more may be left.
        """
        oldest = min(last, self.revision - 1) + 1
        if oldest > self.oldest:
            self.batch.delete_range(number(self.oldest), number(oldest), self._families[CHANGES])
            self.oldest = oldest
        applied = self._families[APPLIED]
        due_keys = self._due(
            self._database.applied, IDS_BY_TIME, ids_expired_at(self.now), examined
        )
        for due in due_keys:
            name = IDS + due[9:]
            data = self._got(self._database.applied, name)
            if data is not None and _head_of(data)[1] == moment_of(due[1:]):
                self.batch.delete(name, applied)
            self.batch.delete(due, applied)
        return len(due_keys) == examined

    def forget(self, space: str, limit: int, kept: str | None) -> int:
        """Delete up to `limit` rows, but not the row `kept`, and as many batch ids of a space;
        return their number."""
        prefix, rows = prefix_of(space), self._database.rows
        left = None if kept is None else prefix + kept.encode()
        count = 0
        for key, data in self._first(rows, prefix, limit + 1):
            if key == left:
                continue
            self._overlay[key] = data
            self._delete_expiries([key])
            del self.batch[key]
            self._overlay[key] = None
            count += 1
        applied = self._families[APPLIED]
        for name, data in self._first(self._database.applied, IDS + prefix, limit):
            self.batch.delete(name, applied)
            self.batch.delete(IDS_BY_TIME + moment(_head_of(data)[1]) + name[1:], applied)
            count += 1
        return count

    def forget_changes(self, space: str, after: int, limit: int) -> int | None:
        """Empty the entries of a space among the next `limit` changes.

        Return the last revision that was examined; None if there are no more.
        """
        erased = encode_keys(CommittedKeys("", (), ()))
        reading = bounded(number(after + 1 + limit))
        for key, data in steps(
            self._database.changes.iter(reading), number(after + 1), self._database.folder
        ):
            if decode_keys(data).space == space:
                self.batch.put(key, erased, self._families[CHANGES])
        last = after + limit
        return None if last >= self.revision else last

    def forget_expiries(self, space: str, after: bytes, limit: int) -> bytes | None:
        """Delete stale entries of a space among the next `limit` expiries, as `forget_changes`."""
        prefix = prefix_of(space)
        expiries = islice(steps(self._database.expiry.iter(), after, self._database.folder), limit)
        last = None
        for count, (due, _) in enumerate(expiries, 1):
            if due[8:].startswith(prefix):
                self.batch.delete(due, self._families[EXPIRY])
            last = due + b"\0" if count == limit else None
        return last

    def _first(self, family: Rdict, prefix: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        reading = bounded(prefix[:-1] + b"\1")
        return list(islice(steps(family.iter(reading), prefix, self._database.folder), limit))

    def _encoded(
        self, prefix: bytes, puts: Sequence[Put], revision: int
    ) -> tuple[dict[bytes, bytes], list[tuple[int, bytes]]]:
        """Return the encoded rows, and the expiries of those that have one.

        The previous row of such a key is read, so that its entry in `expiry` can be replaced: else
        a row whose expiry is extended a thousand times would leave a thousand entries.
        """
        rows: dict[bytes, bytes] = {}
        due: list[tuple[int, bytes]] = []
        never = _head(revision, NEVER)
        for put in puts:
            key = prefix + put.key.encode()
            if put.expires is None:
                rows[key] = never + put.value
            else:
                rows[key] = _head(revision, put.expires) + put.value
                due.append((put.expires, key))
                self._stored(key)
        return rows, due

    def _write(
        self, rows: dict[bytes, bytes], due: list[tuple[int, bytes]], deleted: list[bytes]
    ) -> None:
        batch, overlay = self.batch, self._overlay
        if not overlay.keys().isdisjoint(rows):
            self._delete_expiries(rows)
        self._delete_expiries(deleted)
        for expires, key in due:
            batch.put(moment(expires) + key, b"", self._families[EXPIRY])
        for key, data in rows.items():
            batch[key] = data
        overlay.update(rows)
        for key in deleted:
            del batch[key]
            overlay[key] = None

    def _delete_expiries(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            if (old := self._overlay.get(key)) is not None and (
                expires := _head_of(old)[1]
            ) != NEVER:
                self.batch.delete(moment(expires) + key, self._families[EXPIRY])

    def _put_id(self, prefix: bytes, batch_id: str, revision: int) -> None:
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

    def _due(self, family: Rdict, start: bytes, until: int, examined: int) -> list[bytes]:
        """Return the keys of a family with the prefix `start` and a time up to `until`, earliest
        first.
        """
        reading = bounded(start + moment(until + 1))
        entries = islice(steps(family.iter(reading), start, self._database.folder), examined)
        return [key for key, _ in entries]
