"""Faults on purpose: an engine around an engine that fails where it is told to.

    engine = FaultyEngine(engine, fail(3, Killed))              # before the third commit takes effect
    engine = FaultyEngine(engine, fail(3, Killed, after=True))  # after it did, but before anyone was told
    engine = FaultyEngine(engine, die(7))                       # at the seventh call of any kind, and at all that follow
    engine = FaultyEngine(engine, rows=50, bytes=2_000)         # no fault, but little in one commit

`Killed` is what a process sees of its own kill -9: nothing. It is a BaseException so that no handler on the way goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Literal, TypeVar

import msgspec

from keyhouse.engine import Batch, Change, Engine, Page, Row, Span, check_limits
from keyhouse.engines.wrapper import EngineWrapper
from keyhouse.errors import KeyhouseError, UnavailableError, UnknownOutcomeError
from keyhouse.limits import COMMIT_BYTES_MAX, COMMIT_ROWS_MAX

Call = Literal["read", "scan", "commit", "sweep", "watch"]
Answer = TypeVar("Answer")


class Killed(BaseException):
    """The process ended here."""


class Fault(msgspec.Struct, frozen=True):
    """What goes wrong at the `at`-th call (from 1; `None`: at each) of a method: `raises`, before the call's effect or
    `after` it. `call=None`: of any method but `watch`, counted together. A `lasting` one is there at all later calls too.

    Without `raises`, `then` is awaited instead, and the call goes on: for what others do at just that moment.
    """

    at: int | None
    call: Call | None = "commit"
    raises: type[BaseException] | None = None
    after: bool = False
    then: Callable[[], Awaitable[object]] | None = None
    lasting: bool = False

    def is_due(self, call: Call, number: int, total: int) -> bool:
        """At the `number`-th call of this method, which is the `total`-th of all."""
        if self.call != call and (self.call is not None or call == "watch"):
            return False
        count = total if self.call is None else number
        return self.at is None or self.at == count or (self.lasting and self.at < count)


def fail(
    at: int, raises: type[BaseException], *, after: bool = False, call: Call = "commit"
) -> Fault:
    """A fault that raises. After the effect of a commit, what is raised must not claim that nothing was written."""
    if after and call == "commit" and issubclass(raises, UnavailableError):
        raise ValueError(
            "UnavailableError says that nothing was written: use UnknownOutcomeError after the effect"
        )
    return Fault(at, call, raises, after)


def die(at: int, *, after: bool = False) -> Fault:
    """The process ends at its `at`-th call, whatever it is: no call after that one is answered."""
    return Fault(at, None, Killed, after, lasting=True)


def meanwhile(
    at: int | None, then: Callable[[], Awaitable[object]], *, call: Call, after: bool = False
) -> Fault:
    """Something that happens just before, or just after, a call; `at=None`: each call of that name."""
    return Fault(at, call, None, after, then)


class FaultyEngine(EngineWrapper):
    """Is an Engine. `calls` counts what was asked of it; `closed` engines below stay the business of who opened them."""

    def __init__(
        self,
        engine: Engine,
        *faults: Fault,
        yields: bool = False,
        rows: int = COMMIT_ROWS_MAX,
        bytes: int = COMMIT_BYTES_MAX,
    ) -> None:
        """`yields`: every call lets other tasks go first, as an engine behind a network does. `rows` and `bytes`: what it
        takes in one commit, if that is less than the engine does; a caller is held to it."""
        super().__init__(engine)
        self._yields = yields
        able = self._capabilities
        self._capabilities = msgspec.structs.replace(
            able,
            commit_rows_max=min(rows, able.commit_rows_max),
            commit_bytes_max=min(bytes, able.commit_bytes_max),
        )
        self.faults = list(faults)
        self.calls: dict[Call, int] = {"read": 0, "scan": 0, "commit": 0, "sweep": 0, "watch": 0}
        self.batches: list[Batch] = []
        """Every batch that was asked for, in order."""
        self.limits: list[int] = []
        """The limit of every scan, in order."""

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        return await self._called("read", lambda: self._engine.read(space, keys))

    async def scan(
        self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False
    ) -> Page:
        self.limits.append(limit)
        return await self._called(
            "scan",
            lambda: self._engine.scan(
                space, span, limit=limit, reverse=reverse, keys_only=keys_only
            ),
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        check_limits(batch, self._capabilities)
        self.batches.append(batch)
        return await self._called("commit", lambda: self._engine.commit(space, batch))

    def watch(
        self, space: str, span: Span, *, since: int | None = None
    ) -> AsyncGenerator[Change, None]:
        self.calls["watch"] += 1
        changes = self._engine.watch(space, span, since=since)
        due = self._due("watch")
        return self._struck(due, changes) if due else changes

    async def sweep(self, *, limit: int) -> int:
        return await self._called("sweep", lambda: self._engine.sweep(limit=limit))

    async def _called(self, call: Call, go: Callable[[], Awaitable[Answer]]) -> Answer:
        self.calls[call] += 1
        due = self._due(call)
        if self._yields:
            await asyncio.sleep(0)
        total = self._total()
        before = [
            fault for fault in due if not fault.after or (fault.lasting and fault.at != total)
        ]
        await self._strike(before)
        answer = await go()
        await self._strike([fault for fault in due if fault not in before])
        return answer

    async def _struck(
        self, due: list[Fault], changes: AsyncGenerator[Change, None]
    ) -> AsyncGenerator[Change, None]:
        await self._strike(due)
        async for change in changes:
            yield change

    def _due(self, call: Call) -> list[Fault]:
        total = self._total()
        return [fault for fault in self.faults if fault.is_due(call, self.calls[call], total)]

    def _total(self) -> int:
        return sum(self.calls.values()) - self.calls["watch"]

    async def _strike(self, due: list[Fault]) -> None:
        for fault in due:
            if fault.then is not None:
                await fault.then()
            if fault.raises is not None:
                raise _made(fault.raises)


def _made(raises: type[BaseException]) -> BaseException:
    if issubclass(raises, UnknownOutcomeError):
        return raises("The answer was lost on the way, on purpose.")
    if issubclass(raises, UnavailableError):
        return raises("Not reachable, on purpose.")
    if issubclass(raises, KeyhouseError):
        return raises("It failed, on purpose.")
    return raises()
