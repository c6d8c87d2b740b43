"""Faults on purpose: an engine around an engine that fails where it is told to.

    engine = FaultyEngine(engine, fail(3, Killed))              # before the third commit takes effect
    engine = FaultyEngine(engine, fail(3, Killed, after=True))  # after it did, but before anyone was told

`Killed` is what a process sees of its own kill -9: nothing. It is a BaseException so that no handler on the way goes on.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from typing import Literal, TypeVar

import msgspec

from keyhouse.clock import Clock
from keyhouse.engine import Batch, Capabilities, Change, Engine, Page, Row, Span
from keyhouse.errors import UnavailableError, UnknownOutcomeError

Call = Literal["read", "scan", "commit", "sweep"]
Answer = TypeVar("Answer")


class Killed(BaseException):
    """The process ended here."""


class Fault(msgspec.Struct, frozen=True):
    """What goes wrong at the `at`-th call (from 1) of a method: `raises`, before the call's effect or `after` it.

    Without `raises`, `then` is awaited instead, and the call goes on: for what others do at just that moment.
    """

    at: int
    call: Call = "commit"
    raises: type[BaseException] | None = None
    after: bool = False
    then: Callable[[], Awaitable[object]] | None = None


def fail(at: int, raises: type[BaseException], *, after: bool = False, call: Call = "commit") -> Fault:
    """A fault that raises. After the effect of a commit, what is raised must not claim that nothing was written."""
    if after and call == "commit" and issubclass(raises, UnavailableError):
        raise ValueError("UnavailableError says that nothing was written: use UnknownOutcomeError after the effect")
    return Fault(at, call, raises, after)


def meanwhile(at: int, then: Callable[[], Awaitable[object]], *, call: Call, after: bool = False) -> Fault:
    """Something that happens just before, or just after, a call."""
    return Fault(at, call, None, after, then)


class FaultyEngine:
    """Is an Engine. `calls` counts what was asked of it; `closed` engines below stay the business of who opened them."""

    def __init__(self, engine: Engine, *faults: Fault, yields: bool = False) -> None:
        """`yields`: every call lets other tasks go first, as an engine behind a network does."""
        self._engine = engine
        self._yields = yields
        self.faults = list(faults)
        self.calls: dict[Call, int] = {"read": 0, "scan": 0, "commit": 0, "sweep": 0}
        self.batches: list[Batch] = []
        """Every batch that was asked for, in order."""

    @property
    def capabilities(self) -> Capabilities:
        return self._engine.capabilities

    @property
    def clock(self) -> Clock:
        return self._engine.clock

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        return await self._called("read", lambda: self._engine.read(space, keys))

    async def scan(self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False) -> Page:
        return await self._called(
            "scan", lambda: self._engine.scan(space, span, limit=limit, reverse=reverse, keys_only=keys_only)
        )

    async def commit(self, space: str, batch: Batch) -> int | None:
        self.batches.append(batch)
        return await self._called("commit", lambda: self._engine.commit(space, batch))

    def watch(self, space: str, span: Span, *, since: int | None = None) -> AsyncGenerator[Change, None]:
        return self._engine.watch(space, span, since=since)

    async def sweep(self, *, limit: int) -> int:
        return await self._called("sweep", lambda: self._engine.sweep(limit=limit))

    def spaces(self) -> AsyncIterator[str]:
        return self._engine.spaces()

    async def close(self) -> None:
        await self._engine.close()

    async def _called(self, call: Call, go: Callable[[], Awaitable[Answer]]) -> Answer:
        self.calls[call] += 1
        due = [fault for fault in self.faults if fault.call == call and fault.at == self.calls[call]]
        if self._yields:
            await asyncio.sleep(0)
        await self._strike([fault for fault in due if not fault.after])
        answer = await go()
        await self._strike([fault for fault in due if fault.after])
        return answer

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
    return raises()
