"""The engine contract: what every engine promises and the store relies on. It is one page, and it is the manual.

An engine keeps ordered rows in isolated spaces and changes them by one atomic, conditional `commit`. It knows keys as
text and values as bytes; it knows no schema. The store is its only caller, from one event loop.

**Order.** Keys order by their UTF-8 bytes, which is the order of their code points and of Python's `str`.

**Spans** are half open: `start` is in, `stop` is out; `stop=None` has no end.

**Time.** `clock` is the engine's only source of time. A row whose `expires <= clock.now()` is absent: for reads, scans,
checks and adds alike, whether or not it has been swept. A put over it is a put of a new row.

**Revisions** are positive integers. Each commit that writes gets one, greater than any before it in that space; all rows
written by it carry it. The difference between two revisions means nothing.

**Durability.** When `commit` returns a revision, the rows survive the loss of the process and of the machine's power
(where `capabilities.durable`).

**Outcome.** `commit` returns the revision, or `None` when a check did not hold: then nothing was written, and that is an
answer, not an error. It raises `CounterError` when an add meets a row that is not a counter, or would pass its bounds
(nothing written); `UnavailableError` or `FullError` (nothing written); `UnknownOutcomeError` when the engine can't
tell: then the same batch with the same `id` may be sent again, and is applied once.

**Freshness.** A read, a scan and a check show every commit that anybody was told of before they began, in this process or
another. Who wants less says so when opening the engine.

**Values** are bytes, kept as they are. Where not `capabilities.binary`, one that is not UTF-8 or holds a zero byte, which
no JSON does, is refused with `DocumentError`, and nothing is written.

**Isolation.** A space is an argument of its own. No key, span or cursor reaches another space.

Whoever writes an engine runs `keyhouse.testing.conformance` over it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol, runtime_checkable

import msgspec

from keyhouse.clock import Clock
from keyhouse.errors import LimitError, WatchExpiredError
from keyhouse.keys.key import Span as Span
from keyhouse.keys.key import check_key as check_key
from keyhouse.limits import BATCH_ID_BYTES_MAX, COMMIT_BYTES_MAX, COMMIT_ROWS_MAX, VALUE_BYTES_MAX


class Row(msgspec.Struct, frozen=True, gc=False):
    """One row as it is stored. `expires` is in the clock's milliseconds; `None`: never."""

    key: str
    value: bytes
    revision: int
    expires: int | None = None


class Check(msgspec.Struct, frozen=True, gc=False):
    """The row must be at this revision; `None`: must be absent."""

    key: str
    revision: int | None


class Put(msgspec.Struct, frozen=True, gc=False):
    key: str
    value: bytes
    expires: int | None = None


class Add(msgspec.Struct, frozen=True, gc=False):
    """Add to a counter: a row whose value is a JSON integer. An absent one counts from 0. Its expiry, if any, is kept."""

    key: str
    by: int


class Batch(msgspec.Struct, frozen=True, gc=False):
    """The only write there is. No key stands in more than one of `puts`, `deletes`, `adds`, nor twice in one of them.

    All `checks` are of the state before the batch. Deleting an absent row is no error. With an `id`, a batch that was
    applied in this space within the last day is not applied again, and its first revision is returned. A batch that
    writes nothing and whose checks hold is answered with the newest revision, and its `id` is not remembered.
    """

    checks: tuple[Check, ...] = ()
    puts: tuple[Put, ...] = ()
    deletes: tuple[str, ...] = ()
    adds: tuple[Add, ...] = ()
    id: str | None = None


class Page(msgspec.Struct, frozen=True):
    """Rows in the order asked, as they stood together at `revision`. `more`: the span holds at least one live row behind.

    `watch(since=page.revision)` gives every change that this page does not show.
    """

    rows: list[Row]
    more: bool
    revision: int


class Change(msgspec.Struct, frozen=True, gc=False):
    """A row was put (`value`), or is gone (`None`: deleted, or swept after its expiry)."""

    key: str
    revision: int
    value: bytes | None
    expires: int | None = None


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between engines, and nothing else does.

    `durable`: acknowledged is on disk. `shared`: several processes may have it open at once. `snapshots`: it is one of
    `Snapshots`, and can show all its rows as of one moment for as long as one likes. `binary`: any bytes can be a value.
    """

    name: str
    durable: bool
    shared: bool
    snapshots: bool = False
    binary: bool = True
    commit_rows_max: int = COMMIT_ROWS_MAX
    commit_bytes_max: int = COMMIT_BYTES_MAX


@runtime_checkable
class Engine(Protocol):
    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def clock(self) -> Clock: ...

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        """The rows in the order of `keys`; `None` where absent. Not one snapshot: each row is a whole row, of its time."""
        ...

    async def scan(
        self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False
    ) -> Page:
        """Up to `limit` (at least 1) live rows of the span, from one snapshot. With `keys_only`, values are `b""`."""
        ...

    async def commit(self, space: str, batch: Batch) -> int | None:
        """Apply all or nothing: see the head of this file. The batch keeps to `capabilities`: the store has checked."""
        ...

    def watch(
        self, space: str, span: Span, *, since: int | None = None
    ) -> AsyncGenerator[Change, None]:
        """Changes of the span after revision `since`, in revision order, without end; `None`: from the first step on.

        Nothing is missed: the newest change of every key is always delivered. Nothing comes twice. A watcher that is
        behind may be given only the newest of several changes of one key. An expiry shows as a change when the row is
        swept; a row that has expired before its change is delivered is given as gone. Deleting an absent row may show as a
        change.

        `WatchExpiredError` when `since` is older than what is kept. Any revision behind which all spaces together have
        written no more than `CHANGES_KEPT` rows and batch ids is kept; an engine may keep more. So too when `since` is still
        to come, at the first step: it is of a store that was restored since, or of another, and waiting for it would miss
        changes.

        The changes of one commit share its revision. Who stops within a commit resumes from the revision before it, and
        is given that commit again as a whole. Close the generator (`aclose`) when done with it.

        A watch that begins while the server is away raises `UnavailableError`. One that has begun waits until the server
        is back, and goes on without a gap.
        """
        ...

    async def sweep(self, *, limit: int) -> int:
        """Remove up to `limit` expired rows, of any space; how many went. Also prunes what the engine keeps for watches
        and batch ids beyond their time."""
        ...

    def spaces(self) -> AsyncIterator[str]:
        """Every space that holds a live row, in order."""
        ...

    async def close(self) -> None:
        """Finish what was begun, and let go of everything. A second call does nothing."""
        ...


class ReadView(Protocol):
    """What a walk over whole spaces needs. An engine is one, and so is what it shows of one moment."""

    @property
    def clock(self) -> Clock: ...

    async def scan(self, space: str, span: Span, *, limit: int) -> Page: ...

    def spaces(self) -> AsyncIterator[str]: ...


@runtime_checkable
class Snapshots(Protocol):
    """What an engine is beside, when its `capabilities.snapshots` says so."""

    def snapshot(self) -> AbstractAsyncContextManager[ReadView]:
        """All rows of all spaces as they stood together when the context was entered, whatever is committed meanwhile; what
        expires meanwhile is not shown. It is held at the engine's expense: leave it as soon as the walk is done."""
        ...


def outdated(since: int, oldest: int) -> WatchExpiredError:
    """The refusal to watch from a revision behind which changes were pruned. `oldest`: of those that are kept."""
    return WatchExpiredError(
        "The changes since that revision are no longer kept; scan again, then watch from the page's revision.",
        since=since,
        oldest=oldest,
    )


def check_since(since: int | None, newest: int) -> None:
    """Refuse to watch from a revision that is still to come. `newest`: of the space, when the watch begins."""
    if since is not None and since > newest:
        raise WatchExpiredError(
            "That revision is still to come: the store was restored, or is another. Scan again, then watch from the page's.",
            since=since,
            newest=newest,
        )


def check_limits(batch: Batch, capabilities: Capabilities) -> None:
    """Refuse what no engine, or this one, can take, before it is asked: so all engines fail alike. Keys were checked when
    they were built."""
    rows = len(batch.puts) + len(batch.deletes) + len(batch.adds)
    if rows > capabilities.commit_rows_max:
        raise LimitError(
            "One commit can't hold so many rows; split the work into a resumable job.",
            rows=rows,
            limit=capabilities.commit_rows_max,
            engine=capabilities.name,
        )
    if sum([len(put.value) for put in batch.puts]) > VALUE_BYTES_MAX:
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
    """Exactly, for a batch that is large as a whole: a smaller one can't break these limits."""
    for put in batch.puts:
        if len(put.value) > VALUE_BYTES_MAX:
            raise LimitError(
                "The value is too large.", key=put.key, bytes=len(put.value), limit=VALUE_BYTES_MAX
            )
    size = sum(len(put.value) + len(put.key.encode()) for put in batch.puts)
    if size > capabilities.commit_bytes_max:
        raise LimitError(
            "One commit can't hold so many bytes; split the work into a resumable job.",
            bytes=size,
            limit=capabilities.commit_bytes_max,
            engine=capabilities.name,
        )
