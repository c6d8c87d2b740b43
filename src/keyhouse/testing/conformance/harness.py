"""The harness of a conformance test: an engine on an empty store, with a manual clock."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from typing import Any, Final, Protocol

import pytest

from keyhouse.clock import Clock, ManualClock
from keyhouse.engine import Add, Batch, Change, Check, Engine, Put, Row, Span
from keyhouse.limits import CHANGES_KEPT, PAGE_ROWS_MAX

SPACE: Final = "space"
ALL: Final = Span()

TIMEOUT_SECONDS: Final = 30
"""Timeout for a change that must be delivered, on an engine that may be slow."""


class Opener(Protocol):
    def __call__(self, clock: Clock, *, changes_kept: int = CHANGES_KEPT) -> Awaitable[Engine]:
        """Open the store: the same one at every call, empty at the first.

        `changes_kept` replaces the limit `CHANGES_KEPT`.
        """
        ...


class Harness:
    def __init__(
        self, opener: Opener, engine: Engine, clock: ManualClock, changes_kept: int
    ) -> None:
        self._opener = opener
        self._changes_kept = changes_kept
        self.engine = engine
        self.clock = clock

    async def reopen(self) -> None:
        await self.engine.close()
        self.engine = await self.another()

    async def another(self) -> Engine:
        return await self._opener(self.clock, changes_kept=self._changes_kept)

    def later(self, milliseconds: int) -> int:
        return self.clock.now() + milliseconds

    async def commit(
        self,
        *,
        space: str = SPACE,
        checks: dict[str, int | None] | None = None,
        puts: dict[str, bytes] | None = None,
        deletes: tuple[str, ...] = (),
        adds: dict[str, int] | None = None,
        expires: int | None = None,
        id: str | None = None,
    ) -> int | None:
        batch = Batch(
            checks=tuple(Check(key, revision) for key, revision in (checks or {}).items()),
            puts=tuple(Put(key, value, expires) for key, value in (puts or {}).items()),
            deletes=deletes,
            adds=tuple(Add(key, by) for key, by in (adds or {}).items()),
            id=id,
        )
        return await self.engine.commit(space, batch)

    async def put(
        self, *keys: str, value: bytes = b"1", expires: int | None = None, space: str = SPACE
    ) -> int:
        revision = await self.commit(space=space, puts=dict.fromkeys(keys, value), expires=expires)
        assert revision is not None, "a batch without checks was answered with None"
        return revision

    def shares(self, keys: Sequence[str]) -> Iterator[Sequence[str]]:
        """Yield the keys in groups that fit into one commit of the engine."""
        size = self.engine.capabilities.commit_rows_max
        return (keys[start : start + size] for start in range(0, len(keys), size))

    async def row(self, key: str, *, space: str = SPACE) -> Row | None:
        (row,) = await self.engine.read(space, [key])
        return row

    async def value(self, key: str, *, space: str = SPACE) -> bytes | None:
        row = await self.row(key, space=space)
        return None if row is None else row.value

    async def keys(
        self, span: Span = ALL, *, space: str = SPACE, reverse: bool = False
    ) -> list[str]:
        page = await self.engine.scan(space, span, limit=PAGE_ROWS_MAX, reverse=reverse)
        assert not page.more
        return [row.key for row in page.rows]

    async def changes(self, *, since: int, span: Span = ALL, space: str = SPACE) -> list[Change]:
        """Return all changes since a revision: put a last row, and read the watch up to it."""
        last = span.start + "\U0010ffff"
        assert last in span
        mark = await self.put(last, space=space)
        watch = self.engine.watch(space, span, since=since)
        found: list[Change] = []
        while (change := await step(watch)).revision != mark:
            found.append(change)
        await leave(watch)
        return found


async def step(watch: AsyncGenerator[Change, None]) -> Change:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await anext(watch)


async def leave(watch: AsyncGenerator[Change, None]) -> None:
    await watch.aclose()


Scenario = Callable[[Any, Harness], Awaitable[None]]


def scenario(
    *,
    durable: bool = False,
    shared: bool = False,
    snapshots: bool = False,
    changes_kept: int = CHANGES_KEPT,
) -> Callable[[Scenario], Callable[[Any, Opener], None]]:
    """Turn an async method into a pytest test, skipped if the engine lacks a capability."""
    needed = {"durable": durable, "shared": shared, "snapshots": snapshots}

    def decorate(method: Scenario) -> Callable[[Any, Opener], None]:
        def test(self: Any, opener: Opener) -> None:
            asyncio.run(_play(self, opener))

        async def _play(self: Any, opener: Opener) -> None:
            clock = ManualClock()
            harness = Harness(
                opener, await opener(clock, changes_kept=changes_kept), clock, changes_kept
            )
            try:
                can = harness.engine.capabilities
                lacking = [name for name, need in needed.items() if need and not getattr(can, name)]
                if lacking:
                    pytest.skip(f"the {can.name} engine does not declare {' and '.join(lacking)}")
                await method(self, harness)
            finally:
                await harness.engine.close()

        test.__name__ = test.__qualname__ = getattr(method, "__name__", "test")
        test.__doc__ = method.__doc__
        return test

    return decorate
