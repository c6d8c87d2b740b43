"""The engine in memory: the simplest form of the contract, and the model for the other engines.

Every call but a watch is one step of the event loop, so nothing needs a lock. Closing it loses all
rows.
"""

import asyncio
from bisect import bisect_left, insort
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Final, NamedTuple

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import (
    Batch,
    Capabilities,
    CaughtUp,
    Change,
    Check,
    Page,
    Put,
    Row,
    Span,
    fitting_rows,
)
from keyhouse.engines.batch_plan import Writes, evaluate, ids_expired_at
from keyhouse.engines.retention import Kept, Retention
from keyhouse.engines.watch_loop import ChangedKey, LogPage, newest_change, watch_log
from keyhouse.errors import ClosedError
from keyhouse.limits import CHANGES_KEPT

CAPABILITIES: Final = Capabilities(name="memory", durable=False, shared=False, snapshots=True)


class _Commit(NamedTuple):
    """One commit in the log: keys only, because a watch delivers the newest row."""

    space: str
    put: Sequence[str]
    deleted: Sequence[str]


class _Applied(NamedTuple):
    revision: int
    at: int


class _Space:
    """The rows of one space and their sorted keys. Expired rows stay until a sweep."""

    def __init__(self) -> None:
        self.rows: dict[str, Row] = {}
        self.keys: list[str] = []

    def copy(self) -> "_Space":
        copy = _Space()
        copy.rows, copy.keys = dict(self.rows), list(self.keys)
        return copy

    def put(self, row: Row) -> None:
        if row.key not in self.rows:
            insort(self.keys, row.key)
        self.rows[row.key] = row

    def delete(self, key: str) -> None:
        if self.rows.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def span(self, span: Span) -> list[str]:
        stop = len(self.keys) if span.stop is None else bisect_left(self.keys, span.stop)
        return self.keys[bisect_left(self.keys, span.start) : stop]


class _State:
    """The rows of an engine, as a batch finds them."""

    def __init__(self, engine: "MemoryEngine") -> None:
        self._engine = engine

    @property
    def revision(self) -> int:
        return self._engine._revision

    def applied(self, space: str, batch_id: str) -> int | None:
        applied = self._engine._applied.get((space, batch_id))
        if applied is None or applied.at <= ids_expired_at(self._engine.clock.now()):
            return None
        return applied.revision

    def holds(self, space: str, check: Check) -> bool:
        row = self._engine.live(space, check.key)
        return (None if row is None else row.revision) == check.revision

    def counter(self, space: str, key: str) -> tuple[bytes | None, int | None]:
        row = self._engine.live(space, key)
        return (None, None) if row is None else (row.value, row.expires)


class _SpaceLog:
    """The log of one space, for one watch."""

    reconnects = False

    def __init__(self, engine: "MemoryEngine", space: str, span: Span) -> None:
        self._engine = engine
        self._space = space
        self._span = span

    async def start(self, since: int | None) -> int:
        return self._engine._revision

    def wakeup(self) -> asyncio.Event:
        return self._engine._committed

    async def page(self, position: int) -> LogPage[ChangedKey]:
        engine, span = self._engine, self._span
        engine._check_open()
        commits = enumerate(engine._log[max(0, position - engine._pruned) :], position + 1)
        changed: list[ChangedKey] = []
        for revision, commit in commits:
            if commit.space == self._space:
                changed += [ChangedKey(key, revision) for key in commit.put if key in span]
                changed += [
                    ChangedKey(key, revision, True) for key in commit.deleted if key in span
                ]
        return LogPage(changed, engine._revision, engine._pruned)

    async def change(self, entry: ChangedKey) -> Change | None:
        engine = self._engine
        return newest_change(entry, engine._stored(self._space, entry.key), engine.clock)

    def leave(self) -> None:
        pass


class MemoryEngine:
    """See `keyhouse.engine` for the contract of each method."""

    def __init__(self, clock: Clock | None = None, *, changes_kept: Kept = CHANGES_KEPT) -> None:
        self.clock = clock or SystemClock()
        self._retention = Retention(changes_kept, self.clock)
        self._spaces: dict[str, _Space] = {}
        self._revision = 0
        self._pruned = 0  # newest revision that was pruned from the log
        self._log: list[_Commit] = []  # of the revisions after `_pruned`, without gaps
        self._applied: dict[tuple[str, str], _Applied] = {}
        self._committed = asyncio.Event()  # every commit sets and replaces it
        self._closed = False
        self._state = _State(self)

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        self._check_open()
        rows = [self.live(space, key) for key in keys]
        if bytes_max is not None:
            sizes = [0 if row is None else len(row.value) for row in rows]
            return rows[: fitting_rows(sizes, bytes_max)]
        return rows

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
        self._check_open()
        keys = self._spaces[space].span(span) if space in self._spaces else []
        live = (
            row
            for key in (reversed(keys) if reverse else keys)
            if (row := self.live(space, key)) is not None
        )
        rows = list(islice(live, limit + 1))
        page = [Row(row.key, b"", row.revision, row.expires) for row in rows] if keys_only else rows
        if bytes_max is not None:
            limit = min(limit, fitting_rows([len(row.value) for row in page], bytes_max))
        return Page(page[:limit], len(rows) > limit, self._revision)

    async def commit(self, space: str, batch: Batch) -> int | None:
        self._check_open()
        writes = evaluate(space, batch, self._state)
        if not isinstance(writes, Writes):
            return writes
        revision = self._write(space, writes.puts, writes.deletes)
        if batch.id is not None:
            self._applied[space, batch.id] = _Applied(revision, self.clock.now())
        return revision

    def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return watch_log(_SpaceLog(self, space, span), since, caught_up)

    async def sweep(self, *, limit: int) -> int:
        self._check_open()
        now = self.clock.now()
        expired = sorted(
            (row.expires, name, row.key)
            for name, space in self._spaces.items()
            for row in space.rows.values()
            if row.expires is not None and row.expires <= now
        )[:limit]
        for name in dict.fromkeys(name for _, name, _ in expired):
            self._write(name, (), tuple(key for _, of, key in expired if of == name))
        self._prune()
        return len(expired)

    async def forget(self, space: str, *, last: str | None = None) -> None:
        self._check_open()  # in one step, so that no row is erased after the others
        self._spaces.pop(space, None)
        erased = _Commit("", (), ())
        self._log = [erased if commit.space == space else commit for commit in self._log]
        self._applied = {key: each for key, each in self._applied.items() if key[0] != space}

    async def spaces(self) -> AsyncIterator[str]:
        self._check_open()
        for name in sorted(self._spaces):
            if any(self.live(name, key) is not None for key in self._spaces[name].keys):
                yield name

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator["MemoryEngine"]:
        self._check_open()
        copy = MemoryEngine(self.clock)
        copy._spaces = {name: space.copy() for name, space in self._spaces.items()}
        copy._revision = self._revision
        yield copy

    async def close(self) -> None:
        self._closed = True
        self._notify()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")

    def _stored(self, space: str, key: str) -> Row | None:
        return self._spaces[space].rows.get(key) if space in self._spaces else None

    def live(self, space: str, key: str) -> Row | None:
        row = self._stored(space, key)
        return (
            None
            if row is None or (row.expires is not None and row.expires <= self.clock.now())
            else row
        )

    def _write(self, space: str, puts: Sequence[Put], deletes: Sequence[str]) -> int:
        rows = self._spaces.setdefault(space, _Space())
        self._revision += 1
        for put in puts:
            rows.put(Row(put.key, put.value, self._revision, put.expires))
        for key in deletes:
            rows.delete(key)
        self._log.append(_Commit(space, [put.key for put in puts], deletes))
        self._notify()
        return self._revision

    def _notify(self) -> None:
        self._committed.set()
        self._committed = asyncio.Event()

    def _prune(self) -> None:
        extra = max(0, self._retention.prunable(self._revision) - self._pruned)
        del self._log[:extra]
        self._pruned += extra
        expired_at = ids_expired_at(self.clock.now())
        self._applied = {key: each for key, each in self._applied.items() if each.at > expired_at}
