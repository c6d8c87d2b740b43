"""Fault injection: an engine wrapper that fails at given calls.

    FaultyEngine(engine, fail(3, Killed))               before the third commit takes effect
    FaultyEngine(engine, fail(3, Killed, after=True))   after its effect, before it is acknowledged
    FaultyEngine(engine, die(7))                        at the seventh call and at all later ones
    FaultyEngine(engine, rows=50, bytes=2_000)          no fault, but a small commit limit

`Killed` simulates kill -9. It is a BaseException, so that no handler on the way continues.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Literal, TypeVar, get_args

import msgspec

from keyhouse.engine import Batch, CaughtUp, Change, Engine, Page, Row, Span, check_limits
from keyhouse.engines.wrapper import EngineWrapper
from keyhouse.errors import KeyhouseError, UnavailableError, UnknownOutcomeError
from keyhouse.limits import COMMIT_BYTES_MAX, COMMIT_ROWS_MAX

Call = Literal["read", "scan", "commit", "sweep", "forget", "watch"]
Answer = TypeVar("Answer")


class Killed(BaseException):
    """The process was killed here."""


class Fault(msgspec.Struct, frozen=True):
    """A fault at the `at`-th call of a method (from 1; None: at each call).

    It `raises` before the call takes effect, or `after`. With `call=None` it counts calls of all
    methods except `watch`. A `lasting` fault also affects all later calls. Without `raises`, `then`
    is awaited and the call continues: for actions of others at that moment.
    """

    at: int | None
    call: Call | None = "commit"
    raises: type[BaseException] | None = None
    after: bool = False
    then: Callable[[], Awaitable[object]] | None = None
    lasting: bool = False

    def is_due(self, call: Call, number: int, total: int) -> bool:
        """Return True at the `number`-th call of this method, the `total`-th of all."""
        if self.call != call and (self.call is not None or call == "watch"):
            return False
        count = total if self.call is None else number
        return self.at is None or self.at == count or (self.lasting and self.at < count)


def fail(
    at: int, raises: type[BaseException], *, after: bool = False, call: Call = "commit"
) -> Fault:
    """Return a fault that raises.

    After a commit took effect, the error must not state that nothing was written.
    """
    if after and call == "commit" and issubclass(raises, UnavailableError):
        raise ValueError(
            "UnavailableError means that nothing was written: raise UnknownOutcomeError instead"
        )
    return Fault(at, call, raises, after)


def die(at: int, *, after: bool = False) -> Fault:
    """Return a fault that kills the process at its `at`-th call of any method."""
    return Fault(at, None, Killed, after, lasting=True)


def meanwhile(
    at: int | None, then: Callable[[], Awaitable[object]], *, call: Call, after: bool = False
) -> Fault:
    """Return a fault that awaits `then` just before, or after, a call; `at=None`: every call."""
    return Fault(at, call, None, after, then)


class FaultyEngine(EngineWrapper):
    """An Engine with faults. `calls` counts the calls of each method."""

    def __init__(
        self,
        engine: Engine,
        *faults: Fault,
        yields: bool = False,
        rows: int = COMMIT_ROWS_MAX,
        bytes: int = COMMIT_BYTES_MAX,
    ) -> None:
        """Wrap an engine. `yields`: every call lets other tasks run, as a network engine does.

        `rows` and `bytes` lower the limits of one commit, and are enforced.
        """
        super().__init__(engine)
        self._yields = yields
        able = self.capabilities
        self.capabilities = msgspec.structs.replace(
            able,
            commit_rows_max=min(rows, able.commit_rows_max),
            commit_bytes_max=min(bytes, able.commit_bytes_max),
        )
        self.faults = list(faults)
        self.calls: dict[Call, int] = dict.fromkeys(get_args(Call), 0)
        self.batches: list[Batch] = []
        """All committed batches, in order."""
        self.limits: list[int] = []
        """The limits of all scans, in order."""

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        return await self._called(
            "read", lambda: self._engine.read(space, keys, bytes_max=bytes_max)
        )

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
        self.limits.append(limit)
        return await self._called(
            "scan",
            lambda: self._engine.scan(
                space,
                span,
                limit=limit,
                reverse=reverse,
                keys_only=keys_only,
                bytes_max=bytes_max,
            ),
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        check_limits(batch, self.capabilities)
        self.batches.append(batch)
        return await self._called("commit", lambda: self._engine.commit(space, batch))

    def watch(
        self,
        space: str,
        span: Span,
        *,
        since: int | None = None,
        caught_up: CaughtUp | None = None,
    ) -> AsyncGenerator[Change, None]:
        self.calls["watch"] += 1
        changes = self._engine.watch(space, span, since=since, caught_up=caught_up)
        due = self._due("watch")
        return self._with_faults(due, changes) if due else changes

    async def sweep(self, *, limit: int) -> int:
        return await self._called("sweep", lambda: self._engine.sweep(limit=limit))

    async def forget(self, space: str, *, last: str | None = None) -> None:
        await self._called("forget", lambda: self._engine.forget(space, last=last))

    async def _called(self, call: Call, go: Callable[[], Awaitable[Answer]]) -> Answer:
        self.calls[call] += 1
        due = self._due(call)
        if self._yields:
            await asyncio.sleep(0)
        total = self._total()
        before = [
            fault for fault in due if not fault.after or (fault.lasting and fault.at != total)
        ]
        await self._inject(before)
        answer = await go()
        await self._inject([fault for fault in due if fault not in before])
        return answer

    async def _with_faults(
        self, due: list[Fault], changes: AsyncGenerator[Change, None]
    ) -> AsyncGenerator[Change, None]:
        await self._inject(due)
        async for change in changes:
            yield change

    def _due(self, call: Call) -> list[Fault]:
        total = self._total()
        return [fault for fault in self.faults if fault.is_due(call, self.calls[call], total)]

    def _total(self) -> int:
        return sum(self.calls.values()) - self.calls["watch"]

    async def _inject(self, due: list[Fault]) -> None:
        for fault in due:
            if fault.then is not None:
                await fault.then()
            if fault.raises is not None:
                raise _error(fault.raises)


def _error(raises: type[BaseException]) -> BaseException:
    if issubclass(raises, UnknownOutcomeError):
        return raises("The response was lost (injected fault).")
    if issubclass(raises, UnavailableError):
        return raises("Not reachable (injected fault).")
    if issubclass(raises, KeyhouseError):
        return raises("Failed (injected fault).")
    return raises()
