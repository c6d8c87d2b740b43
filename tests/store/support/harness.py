"""The harness of a store test: an empty engine of each kind and a manual clock."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest

from keyhouse.clock import ManualClock, UlidSource
from keyhouse.engine import Batch, Engine, Put, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.schema import Schema
from keyhouse.store import Finding, Store, verify
from keyhouse.testing.faults import Fault, FaultyEngine
from tests.store.support.library_schema import (
    BOOK,
    HITS,
    LIBRARY,
    MAP,
    SLIDING,
    VIEWING,
    Book,
    Session,
    Viewing,
)

KINDS: Final = ("memory", "sqlite")
SPACE: Final = "space"
TIMEOUT_SECONDS: Final = 30

Rows = dict[str, tuple[bytes, int | None]]


class Harness:
    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.clock = ManualClock()
        self._folder = folder
        self.engine: Engine = self.opened()

    def opened(self) -> Engine:
        if self.kind == "memory":
            return MemoryEngine(self.clock)
        return SqliteEngine.open(self._folder / "rows.db", clock=self.clock)

    async def reopen(self) -> None:
        """Reopen a durable engine; a volatile one stays open."""
        if self.engine.capabilities.durable:
            await self.engine.close()
            self.engine = self.opened()

    def store(
        self,
        schema: Schema = LIBRARY,
        space: str = SPACE,
        *,
        engine: Engine | None = None,
        **fixed: Any,
    ) -> Store:
        return Store(
            schema,
            engine or self.engine,
            space,
            ids=UlidSource(self.clock, seed=7),
            **fixed,
        )

    def faulty(self, *faults: Fault, yields: bool = False) -> FaultyEngine:
        return FaultyEngine(self.engine, *faults, yields=yields)

    async def rows(self, space: str = SPACE) -> Rows:
        """Return all stored rows of the space."""
        found: Rows = {}
        span: Span | None = Span()
        while span is not None:
            page = await self.engine.scan(space, span, limit=1_000)
            found |= {row.key: (row.value, row.expires) for row in page.rows}
            span = span.after(page.rows[-1].key) if page.more else None
        return found

    async def plant(
        self, rows: dict[str, bytes | None], *, expires: int | None = None, space: str = SPACE
    ) -> None:
        """Write rows directly to the engine, as another program would; None deletes."""
        batch = Batch(
            puts=tuple(
                Put(key, value, expires) for key, value in rows.items() if value is not None
            ),
            deletes=tuple(key for key, value in rows.items() if value is None),
        )
        assert await self.engine.commit(space, batch) is not None


Story = Callable[[Harness], Awaitable[None]]


def everywhere(story: Story) -> Callable[[str, Path], None]:
    """Turn a story into a test that runs on an empty engine of each kind."""

    @pytest.mark.parametrize("kind", KINDS)
    def test(kind: str, tmp_path: Path) -> None:
        asyncio.run(played(story, kind, tmp_path))

    test.__name__ = test.__qualname__ = getattr(story, "__name__", "story")
    test.__doc__ = story.__doc__
    test.__module__ = story.__module__
    return test


async def played(story: Story, kind: str, folder: Path) -> None:
    harness = Harness(kind, folder)
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS * 4):
            await story(harness)
    finally:
        await harness.engine.close()


async def findings(store: Store, **options: Any) -> list[Finding]:
    return [finding async for finding in verify(store, **options)]


async def clean(store: Store) -> None:
    """Assert that `verify` finds nothing wrong."""
    assert await findings(store) == []


async def all_of(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


async def soon(item: Awaitable[Any]) -> Any:
    """Await an item that must arrive, with a timeout."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return await item


def book(id: str = "1", **fields: Any) -> Book:
    return Book(**{"id": id, "title": f"Title {id}", **fields})


def session(id: str = "1", **fields: Any) -> Session:
    return Session(**{"id": id, "user": "ann", "token": f"t{id}", **fields})


async def sound(harness: Harness) -> Store:
    """Return a store with some records of every kind, and nothing wrong."""
    store = harness.store()
    await store.put(
        BOOK, book("1", series="s", position=1, tags=["x"], isbn="9", year=1, shelf="a", rating=2)
    )
    await store.put(
        BOOK, book("2", series="s", position=2, tags=["x", "y"], isbn="8", year=1, shelf="a")
    )
    await store.put(BOOK, book("3", year=2))
    for state in ("open", "done"):
        await store.put(VIEWING, Viewing(state=state, asset="7", topic="t"))
    await store.put(SLIDING, session())
    await store.put(MAP, {"a": 1}, id="m")
    await store.add(HITS, 3, page="p")
    return store


def kinds_and_keys(found: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.kind, finding.key) for finding in found]
