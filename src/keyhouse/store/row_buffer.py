"""Row buffers: the rows of one space that a transaction has read and will write, and the Batch they
become.

They know keys and rows, and nothing of records, except the hooks of `LinkedRows`: see
`keyhouse.store.transaction` for how both work together.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from keyhouse.counter import sum_of
from keyhouse.engine import Add, Batch, Check, Engine, Put, Row, check_limits
from keyhouse.errors import UsageError
from keyhouse.schema import BoundLink, JobState, Keys, Record
from keyhouse.store.binding import Binding
from keyhouse.store.entry import RowChange, Written


class Removal(NamedTuple):
    """A record that is deleted, and whose dependents must be dealt with. `job`: they are deleted
    later, by this job."""

    record: Record[Any]
    values: Keys
    job: JobState | None = None


class LinkBuffer:
    """Conditions of a commit on linked records, by key (see `linked_rows`).

    needed     the records that a written one is linked to, by its key
    created    new records that others may depend on
    removed    deleted records that others may depend on
    """

    __slots__ = ("created", "needed", "removed")

    def __init__(self) -> None:
        self.needed: dict[str, dict[str, BoundLink]] = {}
        self.created: dict[str, Record[Any]] = {}
        self.removed: dict[str, Removal] = {}

    def copy(self) -> "LinkBuffer":
        copy = LinkBuffer()
        copy.needed, copy.created = self.needed.copy(), self.created.copy()
        copy.removed = self.removed.copy()
        return copy


Buffers = tuple[dict[str, Put | None], dict[str, int], LinkBuffer | None]


class RowBuffer(ABC):
    """Rows read, rows to write and counters to add to. `binding` is the schema of the records whose
    rows they are.

    `is_first_attempt`: another one follows if the commit loses a race, so that it may assume the
    state of rows, and check it, without reading them.
    """

    __slots__ = (
        "_adds",
        "_assumed",
        "_engine",
        "_is_first_attempt",
        "_is_writing",
        "_links",
        "_live_until",
        "_now",
        "_rows",
        "_space",
        "_writes",
        "binding",
        "revision",
    )

    def __init__(
        self,
        engine: Engine,
        space: str,
        binding: Binding,
        now: int | None = None,
        *,
        is_first_attempt: bool = False,
    ) -> None:
        self._engine = engine
        self._space = space
        self.binding = binding
        self._now = engine.clock.now() if now is None else now
        self._rows: dict[str, Row | None] = {}
        self._writes: dict[str, Put | None] = {}
        self._adds: dict[str, int] = {}
        self._links: LinkBuffer | None = None
        self._assumed: dict[str, Check] | None = None
        self._is_first_attempt = is_first_attempt
        self._is_writing = False
        self._live_until: int | None = None
        self.revision = 0
        """The revision of the commit, which is that of every row it wrote; 0 before."""

    @property
    def pending(self) -> int:
        """Number of rows that a commit would write now."""
        return len(self._writes) + len(self._adds)

    @property
    def has_assumed(self) -> bool:
        """True if the commit checks the state of rows that were not read here."""
        return bool(self._assumed)

    @property
    def assumed(self) -> Mapping[str, Check] | None:
        """The checks of rows that were not read here: another mapping after each assumption."""
        return self._assumed

    @property
    def now(self) -> int:
        """The one time of this transaction, in the clock's milliseconds."""
        return self._now

    async def row(self, key: str) -> Written | None:
        """Return value and expiry of a row as this transaction sees it, or None."""
        if key in self._writes:
            put = self._writes[key]
            return None if put is None else (put.value, put.expires)
        row = await self._read(key)
        value, expires = (None, None) if row is None else (row.value, row.expires)
        if key in self._adds:
            return sum_of(key, value, self._adds[key]), expires
        return None if value is None else (value, expires)

    def revision_read(self, key: str) -> int:
        """Return the revision at which a stored row was read here; 0 if it was not read, or was
        absent."""
        row = self._rows.get(key)
        return 0 if row is None else row.revision

    @property
    def live_until(self) -> int | None:
        """The time at which the first of the records read here expires by its own field, whatever
        its row says; None if none of them does."""
        return self._live_until

    @property
    def rows_read(self) -> Mapping[str, Row | None]:
        """The rows that were read here, by key; None for an absent one."""
        return self._rows

    async def prefetch(self, keys: Sequence[str]) -> None:
        """Read rows that will be needed by one call of the engine."""
        missing = [key for key in keys if key not in self._rows]
        if missing:
            rows = await self._engine.read(self._space, missing)
            for key, row in zip(missing, rows, strict=True):
                self._rows.setdefault(key, row)

    def assume(self, checks: Mapping[str, Check]) -> bool:
        """Take rows to be at the revisions of these checks, by key, without reading them.

        Return False, and assume nothing, if one of them was written here, or read or assumed at
        another revision, or if no other attempt would follow a lost race.
        """
        if not self._is_first_attempt:
            return False
        if not self._assumed and not self._rows and not self._writes and not self._adds:
            self._assumed = dict(checks)
            return True
        if any(self._is_used_otherwise(check) for check in checks.values()):
            return False
        self._assumed = {**self._assumed, **checks} if self._assumed else dict(checks)
        return True

    def _is_used_otherwise(self, check: Check) -> bool:
        """Return whether a row was written here, or read or assumed at another revision."""
        key = check.key
        if key in self._writes or key in self._adds:
            return True
        if self._assumed and self._assumed.get(key, check) != check:
            return True
        return key in self._rows and revision_of(self._rows[key]) != check.revision

    def assume_absent(self, key: str) -> bool:
        """Take a row to be absent without reading it, for the commit to check. Return False, and
        assume nothing, if it was used here already, or if no other attempt would follow."""
        if not self._is_first_attempt or key in self._rows or key in self._writes:
            return False
        self._rows[key] = None
        return True

    async def is_unchanged(self) -> bool:
        """Return whether all that was read here is still as it was: then it was so at one
        moment."""
        keys = list(self._rows)
        now = await self._engine.read(self._space, keys)
        return all(
            revision_of(self._rows[key]) == revision_of(row)
            for key, row in zip(keys, now, strict=True)
        )

    def _value_at(self, key: str) -> bytes | None:
        """Return the value of a row that was read or written here."""
        if key in self._writes:
            put = self._writes[key]
            return None if put is None else put.value
        return _value(self._rows.get(key))

    async def _read(self, key: str) -> Row | None:
        if key not in self._rows:
            row = (await self._engine.read(self._space, (key,)))[0]
            self._rows.setdefault(key, row)  # of two concurrent reads, the first must hold
        return self._rows[key]

    # Writing

    def write(self, key: str, written: Written | None) -> None:
        """Put or delete one row as it is: for repairs of rows that no record accounts for."""
        self._writes[key] = None if written is None else Put(key, *written)

    def discard(self) -> None:
        """Drop all buffered writes; what was read stays checked."""
        self._writes.clear()
        self._adds.clear()
        self._links = None

    async def commit(self, *, batch_id: str | None = None) -> int | None:
        """Commit and return the revision; None when a row read here has changed since. Nothing to
        write: 0, and None if nothing has checked what was assumed."""
        if not self._writes and not self._adds:
            return None if self._assumed else 0
        if (links := self._links) is None or self._assume_links(links):
            if self._assumed and self._rows and self._is_contradicted():
                revision = None
            else:
                revision = await self._engine.commit(self._space, self.batch(batch_id))
        else:
            revision = await self._commit_linked(links, batch_id)
        if links is not None:
            self._remember_linked(revision)
        self.revision = revision or 0
        return revision

    def _is_contradicted(self) -> bool:
        """Return whether a row was read at another revision than it was assumed to be at."""
        rows, assumed = self._rows, self._assumed
        if not assumed or rows.keys().isdisjoint(assumed):
            return False
        return any(
            key in rows and revision_of(rows[key]) != each.revision for key, each in assumed.items()
        )

    # Linked records: see `LinkedRows`

    @abstractmethod
    def _assume_links(self, noted: LinkBuffer) -> bool:
        """Return True if the conditions on linked records are buffered as checks."""

    @abstractmethod
    async def _commit_linked(self, noted: LinkBuffer, batch_id: str | None) -> int | None:
        """Make the conditions on linked records hold, and commit."""

    @abstractmethod
    def _remember_linked(self, revision: int | None) -> None:
        """Use the outcome of a commit for the next one."""

    def batch(self, batch_id: str | None = None) -> Batch:
        """Return what a commit would send. Raises LimitError if it exceeds the engine's limits."""
        rows, writes = self._rows, self._writes
        checks: tuple[Check, ...] = ()
        if rows:
            checks = tuple(
                [Check(key, None if row is None else row.revision) for key, row in rows.items()]
            )
        if self._assumed:
            checks += tuple([each for key, each in self._assumed.items() if key not in rows])
        puts: tuple[Any, ...] = tuple(writes.values())
        deletes: tuple[str, ...] = ()
        if not all(puts):
            puts = tuple([put for put in puts if put is not None])
            absent = {key for key, row in rows.items() if row is None}
            deletes = tuple(
                [key for key, put in writes.items() if put is None and key not in absent]
            )
        adds = tuple([Add(key, by) for key, by in self._adds.items()]) if self._adds else ()
        batch = Batch(checks, puts, deletes, adds, batch_id)
        check_limits(batch, self._engine.capabilities)
        return batch

    async def changes(self) -> list[RowChange]:
        """Return the rows that a commit would write now, each with its stored value and its new
        one.

        Rows that were written without a read are read here, and checked by the commit. Rows that
        are only added to are read without a check, so that adds still never conflict.
        """
        await self.prefetch([key for key in self._writes if key not in self._rows])
        changes = [
            RowChange(key, _value(self._rows[key]), None if put is None else put.value)
            for key, put in self._writes.items()
        ]
        if self._adds:
            stored = await self._engine.read(self._space, list(self._adds))
            for (key, by), row in zip(self._adds.items(), stored, strict=True):
                changes.append(RowChange(key, _value(row), sum_of(key, _value(row), by)))
        return changes

    def _add(self, key: str, by: int) -> None:
        if key in self._writes:
            put = self._writes[key]
            value, expires = (None, None) if put is None else (put.value, put.expires)
            self._writes[key] = Put(key, sum_of(key, value, by), expires)
        else:
            # A RecordCount that comes to 0 is kept: `verify` tells by it that there were records.
            self._adds[key] = self._adds.get(key, 0) + by

    # All or nothing

    def one_write(self) -> "OneWrite":
        """Return the context of one write: if the block raises, nothing of it stays buffered, and
        no other write may start before it ends."""
        return OneWrite(self)

    def _saved(self) -> Buffers | None:
        """Return a copy of the buffered writes; None if there are none."""
        if not self._writes and not self._adds:
            return None
        links = None if self._links is None else self._links.copy()
        return self._writes.copy(), self._adds.copy(), links

    def _restore(self, saved: Buffers | None) -> None:
        self._writes, self._adds, self._links = ({}, {}, None) if saved is None else saved


class OneWrite:
    """See `RowBuffer.one_write`. A class costs a third of what a generator would."""

    __slots__ = ("_buffer", "_saved")

    def __init__(self, buffer: RowBuffer) -> None:
        self._buffer = buffer

    def __enter__(self) -> None:
        buffer = self._buffer
        if buffer._is_writing:
            raise concurrent_write()
        buffer._is_writing = True
        self._saved = buffer._saved()

    def __exit__(self, kind: object, *_: object) -> None:
        buffer = self._buffer
        buffer._is_writing = False
        if kind is not None:
            buffer._restore(self._saved)


def concurrent_write() -> UsageError:
    return UsageError(
        "A transaction writes one record at a time: await each write before you start the next."
    )


def revision_of(row: Row | None) -> int | None:
    return None if row is None else row.revision


def _value(row: Row | None) -> bytes | None:
    return None if row is None else row.value
