"""Group commit: the queue in front of every engine that writes to a disk or a server.

Theory of operation
===================

Making a commit durable costs about the same for one batch as for a hundred: a sync of the disk, a
round trip, a transaction. So an engine has one group in flight, and everything that callers submit
meanwhile becomes the next group. Under load groups grow; a single writer never waits for others.

One write goes through these states:

    state       where it is                   leaves it when
    ---------   ---------------------------   ------------------------------------------------------
    queued      in the queue of its lane      a group takes it           -> in flight
                                              its caller is cancelled    -> withdrawn
    in flight   in `CommitGroup.writes`       the group is durable       -> settled
                                              the group fails            -> settled, or queued
                                              the engine puts it back    -> queued, at the front
    settled     its future has the outcome    final
    withdrawn   its future is cancelled       final; the next group that meets it drops it

A write settles with one of four outcomes, each staged while the group is executed and delivered by
`PendingWrite.settle` when nothing can change it any more:

    committed          `result` is the revision (for a sweep, the number of rows)
    check failed       `result` is None: nothing of this write was applied
    error              `error`, the write's own: an invalid counter, a value the engine rejects
    group failure      one error for the whole group, copied for each caller. UnknownOutcomeError if
                       the group may have been applied

Rules that every engine relies on:

1. Writes of one lane are applied in the order in which they were submitted, and a lane is in at
   most one group in flight. SQLite, RocksDB and a JetStream bucket have one lane; PostgreSQL and
   DynamoDB have one for each space.
2. A caller hears of an outcome only after the group is durable. A failed check is held back as
   well: a write before it in the same group may have caused it, and may still fail.
3. A write that fails on its own account fails alone. Where the engine cannot tell which write of a
   group caused an error, none of them was applied, and each runs again in its own group
   (`alone`), unless the error is one that no single write causes (`SHARED_FAILURES`).
4. A cancelled caller withdraws a queued write. In flight, the write runs to its end unobserved.
5. `stop` rejects new writes and drains those already accepted.

Two runners implement the queue. `thread_commit_queue` is for embedded engines: it executes a group
on the event loop and makes it durable on a worker thread. `task_commit_queue` is for servers:
worker tasks send groups, several at once where lanes allow it. This module knows no engine and no
runner.
"""

import asyncio
import sys
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from keyhouse.engine import Batch
from keyhouse.errors import (
    ClosedError,
    EngineError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)

SHARED_FAILURES: Final = (
    ClosedError,
    FullError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
"""Errors of the disk, the server or the connection: running each write alone would not help."""

Answer = TypeVar("Answer")


class PendingWrite(Generic[Answer]):
    """One caller's write and the caller's wait for its outcome. A commit, a sweep or a prune.

    `rows` and `bytes` count towards the limits of a group; `alone` keeps the write in a group of
    its own. `excluded`: the group is executed again without this write, which keeps its `error`.
    """

    __slots__ = ("alone", "bytes", "error", "excluded", "future", "lane", "result", "rows")

    def __init__(self, *, rows: int = 0, bytes: int = 0, alone: bool = False) -> None:
        self.rows = rows
        self.bytes = bytes
        self.alone = alone
        self.error: Exception | None = None
        self.excluded = False
        self.result: Answer
        self.future: asyncio.Future[Answer]
        """Created by `submit`."""
        self.lane: Any
        """Set by the task queue."""

    def settle(self, failure: KeyhouseError | None = None) -> None:
        """Deliver the group's failure or else the staged outcome, unless the caller is gone.

        The failure takes precedence over the write's own error, which may be a consequence of a
        write that failed with the group; only an excluded write failed for certain on its own.
        """
        error, self.error = self.error, None  # its traceback refers back to this write
        if self.future.done():
            return
        if failure is not None and not self.excluded:
            self.future.set_exception(failure.copy())
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.result)


class PendingCommit(PendingWrite[int | None]):
    """A batch of one space. Its result is the revision, or None if a check failed."""

    __slots__ = ("batch", "space")

    def __init__(
        self, space: str, batch: Batch, *, rows: int = 0, bytes: int = 0, alone: bool = False
    ) -> None:
        super().__init__(rows=rows, bytes=bytes, alone=alone)
        self.space = space
        self.batch = batch

    @property
    def identity(self) -> tuple[str, str] | None:
        """The space and the batch id; None without an id."""
        return None if self.batch.id is None else (self.space, self.batch.id)


Write = TypeVar("Write", bound=PendingWrite[Any])


class CommitGroup(Generic[Write]):
    """Writes that are applied together, within the limits of one group.

    A single write may exceed the limits of rows and bytes: then it has the group to itself.
    """

    WRITES_MAX: ClassVar[int] = sys.maxsize
    ROWS_MAX: ClassVar[int] = sys.maxsize
    BYTES_MAX: ClassVar[int] = sys.maxsize

    __slots__ = ("_bytes_left", "_rows_left", "writes")

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self._rows_left = self.ROWS_MAX
        self._bytes_left = self.BYTES_MAX

    def fill(self, queue: deque[Write], count: int = sys.maxsize) -> bool:
        """Move up to `count` writes from the front of the queue into the group; drop withdrawn
        ones.

        Return False if the next write does not fit.
        """
        count = min(count, self.WRITES_MAX - len(self.writes))
        while queue and count:
            write = queue[0]
            if not write.future.cancelled():
                if not self.add(write):
                    return False
                count -= 1
            queue.popleft()
        return True

    def add(self, write: Write) -> bool:
        """Return False, and change nothing, if the write exceeds the remaining rows or bytes."""
        rows_left = self._rows_left - write.rows
        bytes_left = self._bytes_left - write.bytes
        if write.alone:
            if self.writes:
                return False
            rows_left = -1
        elif self.writes and (rows_left < 0 or bytes_left < 0):
            return False
        self._rows_left = rows_left
        self._bytes_left = bytes_left
        self.writes.append(write)
        return True

    def clear(self) -> None:
        self.writes = []
        self._rows_left = self.ROWS_MAX
        self._bytes_left = self.BYTES_MAX

    def remove(self, writes: Sequence[Write]) -> None:
        """Leave these writes to a later group. Their rows and bytes stay counted in this one."""
        removed = set(writes)
        self.writes = [write for write in self.writes if write not in removed]

    def settle(self, failure: KeyhouseError | None = None) -> None:
        """Settle every write: see `PendingWrite.settle`."""
        for write in self.writes:
            if failure is None and write.error is None:  # what `settle` does, without a call
                if not write.future.done():
                    write.future.set_result(write.result)
            else:
                write.settle(failure)


class CommitQueue(ABC):
    """The part of the contract that both runners share; a runner adds `submit`."""

    _closed = False

    @abstractmethod
    def _closed_error(self) -> KeyhouseError:
        """Return the error of a write that is submitted after `stop`."""
        ...

    @abstractmethod
    async def stop(self) -> None:
        """Reject new writes and wait until every accepted one is settled."""
        ...


def unexpected_error(error: Exception) -> KeyhouseError:
    """Return the error of a group that failed before anything was applied.

    An unforeseen exception must settle its group too: a caller without an outcome waits forever,
    and so does every write after it.
    """
    if isinstance(error, KeyhouseError):
        return error
    sentence = "The engine failed with an unexpected error."
    return EngineError(sentence, detail=repr(error)).caused_by(error)


def unexpected_outcome(error: BaseException) -> KeyhouseError:
    """Return the error of a group that failed at a point where it may have been applied."""
    if isinstance(error, KeyhouseError):
        return error
    sentence = "The engine failed with an unexpected error; repeat with the same batch id."
    return UnknownOutcomeError(sentence, detail=repr(error)).caused_by(error)
