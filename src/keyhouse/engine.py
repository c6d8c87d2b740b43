"""The engine contract: everything an engine promises and the store relies on, on one page.

An engine stores ordered rows in isolated spaces and changes them by one atomic, conditional
`commit`. It sees keys as text and values as bytes and knows no schema. Only the store calls it, and
only from one event loop.

**Keys** are ordered by their UTF-8 bytes. That is the order of their code points and of Python's
`str`.

**Spans** are half open: `start` is included, `stop` is excluded, and `stop=None` means no upper
bound.

**Time.** `clock` is the only source of time. A row whose `expires <= clock.now()` is absent for
reads, scans, checks and adds, whether or not it has been swept. A put over it creates a new row.

**Revisions** are positive integers. Each commit that writes gets one revision, greater than every
earlier one in that space, and every row it writes carries it. The distance between two revisions
has no meaning.

**Foreign rows.** Other programs may write into the tables or buckets of an engine. Such a row
is read like any other. If it has no revision that the engine can use, its revision is
`FOREIGN_REVISION`, 0; checks on that revision hold until a commit writes the row.

**Durability.** Once `commit` returns a revision, its rows survive a crash of the process and a loss
of power, if `capabilities.durable`.

**Outcomes of `commit`:**

    a revision           the batch is applied
    None                 a check failed; nothing is written. This is a result, not an error
    CounterError         an add to a row that is not a counter, or an overflow; nothing is written
    UnavailableError     the engine is not reachable; nothing is written
    FullError            no space is left on the disk; nothing is written
    UnknownOutcomeError  sent but not confirmed. Send the same batch with the same `id` again: it is
                         applied once

**Freshness.** A read, a scan and a check see every commit acknowledged before they started, by this
process or another. Weaker reads are an option chosen when the engine is opened.

**Values** are bytes and are returned unchanged. Without `capabilities.binary`, a value that is not
UTF-8 or contains a zero byte (JSON never does) raises `DocumentError`, and nothing is written.

**Isolation.** The space is a separate argument. No key, span or cursor reaches another space.

Run `keyhouse.testing.conformance` to test an engine against this contract.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol, runtime_checkable

import msgspec

from keyhouse.clock import Clock
from keyhouse.errors import CounterError, LimitError, WatchExpiredError
from keyhouse.keys.key import Span as Span
from keyhouse.keys.key import check_key as check_key
from keyhouse.limits import (
    BATCH_ID_BYTES_MAX,
    COMMIT_BYTES_MAX,
    COMMIT_ROWS_MAX,
    COUNTER_MAX,
    VALUE_BYTES_MAX,
)

FOREIGN_REVISION: Final = 0
"""The revision of a row that another program wrote and no commit of the engine has."""

_INTEGER = re.compile(rb"-?(?:0|[1-9][0-9]*)")
_DIGITS_MAX = len(str(COUNTER_MAX)) + 1
"""Including the sign. A longer text is out of range, and slow to parse."""


class Row(msgspec.Struct, frozen=True, gc=False):
    """One stored row. `expires` is in the clock's milliseconds; None if it never expires."""

    key: str
    value: bytes
    revision: int
    expires: int | None = None


class Check(msgspec.Struct, frozen=True, gc=False):
    """A condition of a batch: the row is at this revision, or absent if `revision` is None."""

    key: str
    revision: int | None


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write a row, replacing value and expiry of the one that exists."""

    key: str
    value: bytes
    expires: int | None = None


class Add(msgspec.Struct, frozen=True, gc=False):
    """Add to a counter: a row whose value is a JSON integer without white space, between
    `-COUNTER_MAX` and `COUNTER_MAX`. An absent one starts at 0.

    The row keeps its expiry.
    """

    key: str
    by: int


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The only write. A key occurs at most once in all of `puts`, `deletes` and `adds`.

    All `checks` refer to the state before the batch; several of one row must all hold. Deleting an
    absent row is not an error.

    With an `id`, a batch that was applied in this space within the last `BATCH_ID_KEPT_SECONDS` is
    not applied again; its first revision is returned. If a batch writes nothing and its checks
    hold, the newest revision is returned and its `id` is not stored.
    """

    checks: tuple[Check, ...] = ()
    puts: tuple[Put, ...] = ()
    deletes: tuple[str, ...] = ()
    adds: tuple[Add, ...] = ()
    id: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Rows in the requested order, all read at `revision`. `more`: the span has further live rows.

    `watch(since=page.revision)` yields every change that this page does not show.
    """

    rows: list[Row]
    more: bool
    revision: int

    def sizes(self) -> list[int]:
        """Return the sizes of the values."""
        return [len(row.value) for row in self.rows]

    def first(self, count: int) -> "Page":
        """Return the first rows of the page, which then has more."""
        if count == len(self.rows):
            return self
        return Page(self.rows[:count], True, self.revision)


class Change(msgspec.Struct, frozen=True, gc=False):
    """A row was put (`value`), or removed (`value` is None): deleted, or swept after its expiry."""

    key: str
    revision: int
    value: bytes | None
    expires: int | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """All differences between engines.

    durable      acknowledged rows are on disk
    shared       several processes may open the store at the same time
    snapshots    the engine implements `Snapshots`
    binary       a value may be any bytes
    commit_*     the largest batch
    """

    name: str
    durable: bool
    shared: bool
    snapshots: bool = False
    binary: bool = True
    commit_rows_max: int = COMMIT_ROWS_MAX
    commit_bytes_max: int = COMMIT_BYTES_MAX


CaughtUp = Callable[[int], None]
"""Called by a watch that has delivered all changes up to a revision, and waits for more."""


@runtime_checkable
class Engine(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def clock(self) -> Clock: ...

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        """Return the rows in the order of `keys`, None where absent.

        Each row is complete, but the rows are not one snapshot: a commit may land between two of
        them. For a snapshot, use `scan`.

        With `bytes_max`, only the rows of the first keys are returned: as many as fit, by their
        values, and one at least. A read in this process holds up every other task, and large values
        take memory. An engine that asks a server may return more. The store passes it with every
        read that may be large, and with no other: a wrapper may count these, and let them wait.
        """
        ...

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        """Return up to `limit` (at least 1) live rows of the span, read from one snapshot.

        With `keys_only`, every value is `b""`. An unknown space is an empty page. `bytes_max` is as
        in `read`: a page that ends with it has `more`.
        """
        ...

    async def commit(self, space: str, batch: Batch) -> int | None:
        """Apply the whole batch or nothing, and return its revision, or None if a check failed.

        The store has already checked the batch against `capabilities`. If the caller is cancelled,
        the batch is applied or not, never in part.
        """
        ...

    def watch(
        self,
        space: str,
        span: Span,
        *,
        since: int | None = None,
        caught_up: CaughtUp | None = None,
    ) -> AsyncGenerator[Change, None]:
        """Yield the changes of the span after revision `since`, in revision order, without end.

        With `since=None`, the watch starts at the first step of the generator. It creates what the
        engine keeps for a space, such as a bucket, if that is missing, and changes nothing else.

        `caught_up` is called with a revision whenever every change up to it has been delivered and
        the watch is about to wait. So what was delivered before is whole commits.

        Delivery: the newest change of every key is always delivered, and no change twice. A slow
        watcher may get only the newest of several changes of one key. Deleting an absent row may be
        delivered as a change. An expiry is delivered when the row is swept; a row that expired
        before its change is delivered is delivered as removed.

        Resuming: all changes of one commit share its revision. A watcher that stops within a commit
        resumes from the revision before it and gets the whole commit again.

        Raises `WatchExpiredError` if changes after `since` have been pruned. They are available as
        long as all spaces together have written no more than `CHANGES_KEPT` rows and batch ids
        (`changes_kept=` in the URL) since then, and for `changes_seconds=` in any case; an engine
        may keep more. Also raised, at the first step, if `since` is newer than the newest revision:
        the store was restored or is a different one, and waiting would miss changes.

        Raises `UnavailableError` if the server is unreachable when the watch starts. A watch that
        has started waits until the server is back and continues without a gap.

        Close the generator (`aclose`) to release the watch.
        """
        ...

    async def sweep(self, *, limit: int) -> int:
        """Delete up to `limit` expired rows of any space, and return how many were deleted.

        Also prunes changes and batch ids that need not be kept any longer.
        """
        ...

    async def forget(self, space: str, *, last: str | None = None) -> None:
        """Erase a space: its rows, expired or not, its changes and its batch ids.

        Works in bounded transactions and needs no checkpoint: a call that was interrupted is
        repeated. The row at the key `last` is erased when everything else is, also on disk: as long
        as it is there, a call was interrupted. Nothing is logged, so watches do not report it:
        delete the rows by commits first. Afterwards the revisions of the space may start again, and
        a watch may not resume from an earlier one. The space must not be written meanwhile. An
        engine also erases the bytes on disk as far as it can; `docs/guides/forget.md` has the
        limits.
        """
        ...

    def spaces(self) -> AsyncIterator[str]:
        """Yield every space that has a live row, in order."""
        ...

    async def close(self) -> None:
        """Finish the commits in flight and release all resources. A second call does nothing."""
        ...


class ReadView(Protocol):
    """The part of an engine needed to read whole spaces; implemented by engines and snapshots."""

    @property
    def clock(self) -> Clock: ...

    async def scan(self, space: str, span: Span, *, limit: int) -> Page: ...

    def spaces(self) -> AsyncIterator[str]: ...


@runtime_checkable
class Snapshots(Protocol):
    """Optional protocol, implemented by engines whose `capabilities.snapshots` is true."""

    def snapshot(self) -> AbstractAsyncContextManager[ReadView]:
        """Open a view of all rows of all spaces as of one moment.

        Later commits are not visible; rows that expire in the meantime disappear. The engine pays
        for an open snapshot (undo logs, disk space), so leave the context as soon as possible.
        """
        ...


def outdated(since: int, oldest: int) -> WatchExpiredError:
    """Return the error for a watch from a pruned revision. `oldest` is the oldest one available."""
    return WatchExpiredError(
        "The changes since that revision are no longer kept; scan again, then watch from the"
        " page's revision.",
        since=since,
        oldest=oldest,
    )


def check_since(since: int | None, newest: int) -> None:
    """Raise WatchExpiredError if `since` is newer than `newest`, the space's newest revision."""
    if since is not None and since > newest:
        raise WatchExpiredError(
            "That revision is newer than the newest one: the store was restored, or is a different"
            " one. Scan again, then watch from the page's revision.",
            since=since,
            newest=newest,
        )


def fitting_rows(sizes: Sequence[int], bytes_max: int) -> int:
    """Return how many rows with values of these sizes fit in `bytes_max`: the first always does."""
    left = bytes_max
    for at, size in enumerate(sizes):
        left -= size
        if left < 0:
            return max(at, 1)
    return len(sizes)


def check_limits(batch: Batch, capabilities: Capabilities) -> None:
    """Raise LimitError if the batch exceeds the limits of all engines or of this one.

    The store calls it before `commit`, so every engine fails alike. Keys were checked when built.
    """
    rows = len(batch.puts) + len(batch.deletes) + len(batch.adds)
    if rows > capabilities.commit_rows_max:
        raise LimitError(
            "Too many rows for one commit; split the work into a resumable job.",
            rows=rows,
            limit=capabilities.commit_rows_max,
            engine=capabilities.name,
        )
    puts = batch.puts
    size = len(puts[0].value) if len(puts) == 1 else sum([len(put.value) for put in puts])
    if size > VALUE_BYTES_MAX:
        _check_sizes(batch, capabilities)
    if batch.id is not None and not _is_batch_id(batch.id):
        raise LimitError(
            "A batch id is text of 1 to 128 bytes, without U+0000.",
            id=batch.id,
            limit=BATCH_ID_BYTES_MAX,
        )


def _is_batch_id(id: object) -> bool:
    try:
        return isinstance(id, str) and 0 < len(id.encode()) <= BATCH_ID_BYTES_MAX and "\0" not in id
    except UnicodeEncodeError:
        return False


def _check_sizes(batch: Batch, capabilities: Capabilities) -> None:
    """Check exact sizes. Called only for a large batch: a smaller one cannot exceed the limits."""
    for put in batch.puts:
        if len(put.value) > VALUE_BYTES_MAX:
            raise LimitError(
                "The value is too large.", key=put.key, bytes=len(put.value), limit=VALUE_BYTES_MAX
            )
    size = sum(len(put.value) + len(put.key.encode()) for put in batch.puts)
    if size > capabilities.commit_bytes_max:
        raise LimitError(
            "Too many bytes for one commit; split the work into a resumable job.",
            bytes=size,
            limit=capabilities.commit_bytes_max,
            engine=capabilities.name,
        )


def number_of(key: str, value: bytes) -> int:
    """Return a counter's number; raises CounterError if the value is not one."""
    if _INTEGER.fullmatch(value) is None:
        raise CounterError("The row is not a counter: its value is not a JSON integer.", key=key)
    if len(value) > _DIGITS_MAX:
        raise CounterError("The counter is out of range.", key=key, limit=COUNTER_MAX)
    return int(value)


def sum_of(key: str, value: bytes | None, by: int) -> bytes:
    """Return the counter's value after adding `by`; an absent one starts at 0."""
    total = by if value is None else number_of(key, value) + by
    if not -COUNTER_MAX <= total <= COUNTER_MAX:
        raise CounterError("The counter would overflow.", key=key, by=by, limit=COUNTER_MAX)
    return b"%d" % total
