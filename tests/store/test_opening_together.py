"""Programs that open one space at once: one prepares it, the others wait for it."""

import asyncio
import multiprocessing
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from keyhouse import Index, Meta, Record, RecordCount, Schema, Space, open_store
from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.wrapper import EngineWrapper
from keyhouse.errors import LeaseError
from keyhouse.schema import JobState, migration_job
from keyhouse.store import Store, migrate, verify, version
from tests.store.support.opening_process import AFTER, BEFORE, OLD_SONG, SONGS, OldSong
from tests.store.support.opening_process import open_together as open_in_process
from tests.support.engine_openers import OPENERS, postgres_schema

PROCESSES = 4
SHARED = [name for name in OPENERS if name in ("sqlite", "postgres")]
"""Engines that several processes open at once, and that need no separate server."""


async def _url(name: str, folder: Path) -> str:
    return await postgres_schema() if name == "postgres" else f"sqlite:{folder / 'songs.db'}"


@pytest.mark.parametrize("name", SHARED)
def test_four_processes_that_open_a_store_together_all_open_it(name: str, tmp_path: Path) -> None:
    """The lease of the first raised LeaseError in the others."""

    async def fill() -> str:
        url = await _url(name, tmp_path)
        async with open_store(BEFORE, url, "radio") as store:
            for at in range(SONGS):
                await store.put(OLD_SONG, OldSong(id=f"{at:03d}", title=f"Song {at}"))
        return url

    url = asyncio.run(fill())
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([open_in_process.__module__])
    barrier, answers = context.Barrier(PROCESSES), context.Queue()
    processes = [
        context.Process(target=open_in_process, args=(barrier, url, answers))
        for _ in range(PROCESSES)
    ]
    for process in processes:
        process.start()
    found = [answers.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
    assert found == [f"{SONGS} songs, each counted {{1}}"] * PROCESSES


class OtherOpens(EngineWrapper):
    """Has another process open the space before one of the calls of this one."""

    def __init__(self, engine: MemoryEngine, schema: Schema, at: int) -> None:
        super().__init__(engine)
        self.schema, self.at, self.calls = schema, at, 0

    async def _before_call(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            with suppress(LeaseError):  # this one has the lease: the other would wait
                await open_store(self.schema, self._engine, "radio", reindex=True, wait_seconds=0)

    async def read(self, *args: Any, **options: Any) -> Any:
        await self._before_call()
        return await super().read(*args, **options)

    async def scan(self, *args: Any, **options: Any) -> Any:
        await self._before_call()
        return await super().scan(*args, **options)

    async def commit(self, *args: Any) -> Any:
        await self._before_call()
        return await super().commit(*args)


COUNTED = Record(OldSong, "song:{id}", Index("idx:song:title:{title}:{id}"), RecordCount("songs"))
OPENINGS = {
    "a migration": (AFTER, False),
    "a new index and a count": (
        Schema("songs", COUNTED, space=Space("a channel"), meta=Meta()),
        True,
    ),
}


@pytest.mark.parametrize("songs", [0, 3])
@pytest.mark.parametrize("opening", OPENINGS)
def test_another_process_may_open_the_space_at_any_moment(opening: str, songs: int) -> None:
    """The list of complete derived rows was read twice: it was absent, then another process wrote
    it, so that the first one reported its index as not built."""
    schema, reindex = OPENINGS[opening]

    async def opened(at: int) -> int:
        engine = MemoryEngine(ManualClock())
        for song in range(songs):
            before = Store(BEFORE, engine, "radio")
            await before.put(OLD_SONG, OldSong(id=str(song), title=f"Song {song}"))
        other = OtherOpens(engine, schema, at)
        store = await open_store(schema, other, "radio", reindex=reindex)
        assert len([entry async for entry in store.scan(schema.records[0])]) == songs
        assert not [finding async for finding in verify(Store(schema, engine, "radio"))]
        return other.calls

    async def story() -> None:
        calls = await opened(0)
        assert calls > 5
        for at in range(1, calls + 1):
            await opened(at)

    asyncio.run(story())


async def _leased(engine: MemoryEngine) -> Store:
    """Return a space whose migration another process has the lease of."""
    store = Store(BEFORE, engine, "radio")
    await store.put(OLD_SONG, OldSong(id="a", title="A"))
    assert AFTER.meta is not None
    now = engine.clock.now()
    lease: Any = JobState(owner="another", lease_until=now + 60_000, started_at=now)
    await Store(AFTER, engine, "radio").put(AFTER.meta.job, lease, name=migration_job(1))
    return Store(AFTER, engine, "radio")


def test_the_lease_of_a_killed_process_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("keyhouse.store.jobs.migrate"), "WAIT_RETRY_SECONDS", 0.0)

    async def story() -> None:
        clock = ManualClock()
        engine = MemoryEngine(clock)
        store = await _leased(engine)
        opening = asyncio.ensure_future(open_store(AFTER, engine, "radio"))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not opening.done() and await version(store) == 0
        clock.advance(seconds=60)
        await opening
        assert await version(store) == AFTER.version

    asyncio.run(story())


@pytest.mark.parametrize("wait_seconds", [0.0, 0.01])
def test_the_wait_is_bounded_and_its_error_says_what_to_do(wait_seconds: float) -> None:
    async def story() -> None:
        engine = MemoryEngine(ManualClock())
        store = await _leased(engine)
        with pytest.raises(LeaseError, match=r"[Ww]ait") as raised:
            await open_store(AFTER, engine, "radio", wait_seconds=wait_seconds)
        assert raised.value.fields["job"] == migration_job(1)
        with pytest.raises(LeaseError):
            await migrate(store)  # one's own call does not wait

    asyncio.run(story())
