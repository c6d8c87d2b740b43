"""Concurrent tasks and processes lose no update, claim no name twice, and all finish."""

import asyncio
import multiprocessing
from pathlib import Path
from typing import Any

import pytest

from keyhouse.engine import Batch, Engine
from keyhouse.engines.memory import MemoryEngine
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.store import Store, verify
from keyhouse.testing.faults import FaultyEngine
from tests.sizes import size
from tests.store.support.race_worker import (
    BY_NAME,
    GAME,
    HITS,
    PER_TEAM,
    PLAYER,
    SCORE,
    SECONDS_MAX,
    race,
    race_on_file,
)

TASKS = 64
PROCESSES = 4
ROUNDS = size(3, 8, 40)


async def outcome(store: Store, claimed: list[str], expected: int) -> list[str]:
    """Return all problems after `expected` rounds."""
    found: list[str] = []
    for id in ("transacted", "compared"):
        score = await store.get(SCORE, id=id)
        if score is None or score.points != expected:
            found.append(f"{id}: {score} of {expected}")
    if (hits := await store.get(HITS)) != expected:
        found.append(f"hits: {hits} of {expected}")
    names = [f"Name {number}" for number in range(len(set(claimed)))]
    if sorted(claimed) != sorted(names):
        found.append(f"claimed: {sorted(claimed)}")
    holders = [await store.lookup(PLAYER, BY_NAME, name=name) for name in names]
    if [holder and holder.record.name for holder in holders] != names:
        found.append(f"held: {holders}")
    if (players := await store.count(PLAYER)) != len(names) or await store.record_count(
        PER_TEAM, team="all"
    ) != players:
        found.append(f"players: {players} for {len(names)} names")
    return found + [str(finding) async for finding in verify(store)]


def opened(name: str, folder: Path) -> Engine:
    return (
        FaultyEngine(MemoryEngine(), yields=True)
        if name == "memory"
        else SqliteEngine.open(folder / "game.db")
    )


@pytest.mark.soak
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_64_tasks_lose_no_update_and_claim_no_name_twice(engine: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        store = Store(GAME, opened(engine, tmp_path), "game")
        claimed = await race(store, "p", TASKS, ROUNDS)
        assert len(claimed) == ROUNDS
        assert await outcome(store, claimed, TASKS * ROUNDS) == []
        await store.engine.close()

    asyncio.run(scenario())


def _forkserver() -> Any:
    """Return a context whose processes have imported everything and opened nothing."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.store.support.race_worker"])
    return context


@pytest.mark.soak
def test_64_tasks_in_4_processes_lose_no_update_and_claim_no_name_twice(tmp_path: Path) -> None:
    path, tasks = tmp_path / "game.db", TASKS // PROCESSES
    with _forkserver().Pool(PROCESSES) as pool:
        running = pool.starmap_async(
            race_on_file, [(path, f"p{n}", tasks, ROUNDS) for n in range(PROCESSES)]
        )
        claimed = [name for names in running.get(2 * SECONDS_MAX) for name in names]

    async def scenario() -> None:
        store = Store(GAME, SqliteEngine.open(path), "game")
        assert len(claimed) == ROUNDS
        assert await outcome(store, claimed, TASKS * ROUNDS) == []
        await store.engine.close()

    asyncio.run(scenario())


def test_a_store_that_does_not_check_its_reads_is_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test above can fail: it does when batches have no checks."""
    whole = SqliteEngine.commit

    async def unchecked(self: SqliteEngine, space: str, batch: Batch) -> int | None:
        return await whole(self, space, Batch((), batch.puts, batch.deletes, batch.adds, batch.id))

    monkeypatch.setattr(SqliteEngine, "commit", unchecked)

    async def scenario() -> list[str]:
        store = Store(GAME, SqliteEngine.open(tmp_path / "game.db"), "game")
        claimed = await race(store, "p", TASKS, 2)
        found = await outcome(store, claimed, TASKS * 2)
        await store.engine.close()
        return found

    found = " ".join(asyncio.run(scenario()))
    assert [
        word for word in ("transacted", "compared", "claimed", "conflict") if word not in found
    ] == []


def test_two_writers_in_hot_loops_on_one_record_both_get_done(tmp_path: Path) -> None:
    """The last winner is the first to retry: it must not win every race."""

    async def scenario() -> None:
        store = Store(GAME, SqliteEngine.open(tmp_path / "game.db"), "game")
        claimed = await race(store, "p", 2, 100)
        assert await outcome(store, claimed, 200) == []
        await store.engine.close()

    asyncio.run(scenario())
