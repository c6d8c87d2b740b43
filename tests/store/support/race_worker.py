"""The worker of `test_concurrency.py`. A separate module, since new processes import it by name."""

import asyncio
from pathlib import Path

from msgspec import Struct

from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.errors import RevisionError, UniqueError
from keyhouse.schema import Counter, Index, Record, RecordCount, Schema, Space, Unique
from keyhouse.store import Store, Transaction

SECONDS_MAX = 120
"""Timeout of a race with any number of tasks."""


class Score(Struct, kw_only=True):
    id: str
    points: int


class Player(Struct, kw_only=True):
    id: str
    name: str
    team: str


BY_POINTS = Index("idx:points:{points:06d}:{id}")
SCORE = Record(Score, "score:{id}", BY_POINTS)
BY_NAME = Unique("idx:name:{name:norm}", value="id")
PER_TEAM = RecordCount("team:{team}")
PLAYER = Record(Player, "player:{id}", BY_NAME, PER_TEAM)
HITS = Counter("hits", name="hits")
GAME = Schema("game", SCORE, PLAYER, HITS, space=Space("a game"))


def race_on_file(path: Path, process: str, tasks: int, rounds: int) -> list[str]:
    """Race against other processes, and return the names that this one claimed."""

    async def work() -> list[str]:
        engine = SqliteEngine.open(path)
        try:
            return await race(Store(GAME, engine, "game"), process, tasks, rounds)
        finally:
            await engine.close()

    return asyncio.run(work())


async def race(store: Store, process: str, tasks: int, rounds: int) -> list[str]:
    """Run tasks that add, increment, compare-and-set, and claim names concurrently."""
    claimed: list[str] = []

    async def run(task: int) -> None:
        for number in range(rounds):
            await store.add(HITS, 1)
            await store.transact(_increment)
            await _compare_and_set(store)
            if await _claim(store, f"{process}-{task}-{number}", f"Name {number}"):
                claimed.append(f"Name {number}")

    async with asyncio.timeout(SECONDS_MAX):
        await asyncio.gather(*(run(task) for task in range(tasks)))
    return claimed


async def _increment(tx: Transaction) -> None:
    found = await tx.get(SCORE, id="transacted")
    await tx.put(SCORE, Score(id="transacted", points=1 if found is None else found.points + 1))


async def _compare_and_set(store: Store) -> None:
    while True:
        found = await store.entry(SCORE, id="compared")
        points, revision = (0, None) if found is None else (found.record.points, found.revision)
        try:
            await store.put(SCORE, Score(id="compared", points=points + 1), expect=revision)
            return
        except RevisionError:
            continue


async def _claim(store: Store, id: str, name: str) -> bool:
    try:
        await store.put(PLAYER, Player(id=id, name=name, team="all"))
        return True
    except UniqueError:
        return False
