"""A background task of a service that all its processes share: it runs in one of them at a time,
and once in each interval.

Theory of operation. A row of the space `keyhouse-service` says when the task is due. The process
that moves the row by a compare-and-set runs the task; nobody is elected, and no process needs to
know another.

    row                    a process that looks at it
    --------------------   --------------------------------------------------------------------
    absent, or due         writes a lease and `started`, and runs the task     -> leased
    due later              adopts the result of the last run, and looks again when it is due
    leased                 looks again when the lease expires
    leased, expired        as if due: its runner was killed, or cannot be reached

    the runner of a lease
    --------------------   --------------------------------------------------------------------
    still runs             renews the lease at every third of it; stops if it expires
    has finished           writes when the task is due next, and its result    -> due later
    fails, or stops        ends the lease                                      -> due
    lost the lease         stops

So a run costs two writes, and each other process one read. The times are those of the engine's
clock: a row whose times no run can have written, because a clock was wrong, counts as due. A
process that alone serves its engine writes no row.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any, Final

import msgspec

from keyhouse.engine import Batch, Engine, Row
from keyhouse.errors import KeyhouseError, LeaseError, UnavailableError
from keyhouse.schema.space import SERVICE_SPACE
from keyhouse.service.operation_log import OperationLog
from keyhouse.store.jobs.lease import LEASE_MS, SpaceLease

__all__ = ["SharedTask"]

RETRY_SECONDS: Final = 2.0
RETRY_SECONDS_MAX: Final = 300.0
"""Backoff after the row could not be read or written: doubled each time, up to this."""

STOP_SECONDS: Final = 2.0
"""Timeout for ending the lease at shutdown; else it expires."""

Work = Callable[[], Awaitable[float]]
"""One run of a task; returns the seconds until the next one is due."""


class TaskRow(msgspec.Struct):
    lease_until: int = 0
    due: int = 0
    started: int = 0
    result: Any = None


class SharedTask:
    """`seconds` is the longest interval between two runs. `export` returns the result of a run in
    JSON's types, and `adopt` takes over that of another process. `lease_seconds` is the time after
    which the run of a process that was killed is repeated. While there is no row, a process waits
    for `delay` seconds before it runs the task. `is_shared` is False in a process that alone serves
    the engine."""

    def __init__(
        self,
        engine: Engine,
        name: str,
        seconds: float,
        log: OperationLog,
        *,
        delay: float = 0.0,
        lease_seconds: float = LEASE_MS / 1_000,
        is_shared: bool = True,
        export: Callable[[], Any] = lambda: None,
        adopt: Callable[[Any], None] = lambda result: None,
    ) -> None:
        self._engine = engine
        self._name = name
        self._interval_ms = round(1_000 * seconds)
        self._log = log
        self._delay = delay
        self._is_shared = is_shared and engine.capabilities.shared
        self._first_run = -inf
        self._lease_seconds = lease_seconds
        self._export = export
        self._adopt = adopt
        self._adopted = 0

    async def run(self, work: Work) -> None:
        """Run the task whenever this process gets its turn, until cancelled."""
        if not self._is_shared:
            await asyncio.sleep(self._delay)
            while True:
                await asyncio.sleep(await work())
        self._first_run = _time() + self._delay
        backoff = RETRY_SECONDS
        while True:
            try:
                pause, backoff = await self.look(work), RETRY_SECONDS
            except KeyhouseError as error:
                self._log.task_failed(self._name, error)
                pause, backoff = backoff, min(2 * backoff, RETRY_SECONDS_MAX)
            await asyncio.sleep(pause)

    async def look(self, work: Work) -> float:
        """Run the task if it is due; return the seconds until it should be looked at again."""
        lease = SpaceLease(self._engine, SERVICE_SPACE, f"task:{self._name}")
        lease.milliseconds = round(1_000 * self._lease_seconds)
        found = await lease.row()
        if found is None and (delay := self._first_run - _time()) > 0:
            return delay
        row, now = _decoded(found), self._engine.clock.now()
        if 0 < row.lease_until - now <= lease.milliseconds:
            return (row.lease_until - now) / 1_000
        if row.result is not None and row.started != self._adopted:
            self._adopted = row.started
            self._adopt(row.result)
        if 0 < row.due - now <= self._interval_ms:
            return (row.due - now) / 1_000
        lease.members |= {"due": row.due, "started": now, "result": row.result}
        expires = _time() + self._lease_seconds
        return await self._run(lease, expires, work) if await lease.claim_after(found) else 0.0

    async def _run(self, lease: SpaceLease, expires: float, work: Work) -> float:
        self._adopted = lease.members["started"]
        running = asyncio.ensure_future(work())
        try:
            while not await _is_done(running, min(self._lease_seconds / 3, expires - _time())):
                expires = await self._renew(lease, expires)
            pause = running.result()
            due = self._engine.clock.now() + round(1_000 * pause)
            lease.members |= {"due": due, "result": self._export()}
            return pause
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            with suppress(KeyhouseError, TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await lease.release(**lease.members)

    async def _renew(self, lease: SpaceLease, expires: float) -> float:
        """Return when the lease expires now. Raises LeaseError once it has."""
        now = _time()
        try:
            async with asyncio.timeout_at(expires):
                await lease.commit(Batch())
        except UnavailableError:  # it may be back before the lease expires
            return expires
        except TimeoutError:
            raise LeaseError("The lease was not renewed in time.", task=self._name) from None
        return now + self._lease_seconds


async def _is_done(running: "asyncio.Future[Any]", seconds: float) -> bool:
    return bool((await asyncio.wait([running], timeout=max(0.0, seconds)))[0])


def _time() -> float:
    return asyncio.get_running_loop().time()


def _decoded(row: Row | None) -> TaskRow:
    try:
        return TaskRow() if row is None else msgspec.json.decode(row.value, type=TaskRow)
    except msgspec.MsgspecError:  # another program has written it
        return TaskRow()
