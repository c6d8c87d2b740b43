"""The child process of `sqlite/test_processes.py`, which imports this module by name."""

import asyncio
from pathlib import Path

from keyhouse.engine import Add, Batch, Check, Engine, Put, Span
from keyhouse.engines.sqlite import SqliteEngine

TASKS = 8
JOBS = 60


def work(path: Path, name: str, rounds: int) -> tuple[list[int], list[str]]:
    """Add, compare and set, and claim jobs; return the revisions and the claimed jobs."""
    return asyncio.run(_work(path, name, rounds))


async def _work(path: Path, name: str, rounds: int) -> tuple[list[int], list[str]]:
    engine = SqliteEngine.open(path)
    try:
        revisions: list[int] = []
        await asyncio.gather(*(_add(engine, rounds, revisions) for _ in range(TASKS)))
        await asyncio.gather(
            *(_compare_and_set(engine, rounds // 4, revisions) for _ in range(TASKS))
        )
        return revisions, await _claim(engine, name)
    finally:
        await engine.close()


async def _add(engine: Engine, rounds: int, revisions: list[int]) -> None:
    for _ in range(rounds):
        revision = await engine.commit("s", Batch(adds=(Add("added", 1),)))
        assert revision is not None
        revisions.append(revision)


async def _compare_and_set(engine: Engine, rounds: int, revisions: list[int]) -> None:
    done = 0
    while done < rounds:
        (row,) = await engine.read("s", ["set"])
        value, at = (b"0", None) if row is None else (row.value, row.revision)
        put = Put("set", b"%d" % (int(value) + 1))
        revision = await engine.commit("s", Batch(checks=(Check("set", at),), puts=(put,)))
        if revision is not None:
            done += 1
            revisions.append(revision)


async def _claim(engine: Engine, name: str) -> list[str]:
    """Claim jobs by deleting them, until none is left."""
    claimed: list[str] = []
    while rows := (await engine.scan("s", Span.prefix("job/"), limit=5)).rows:
        for row in rows:
            mine = Put(f"claimed/{row.key}", f'"{name}"'.encode())
            batch = Batch(checks=(Check(row.key, row.revision),), puts=(mine,), deletes=(row.key,))
            if await engine.commit("s", batch) is not None:
                claimed.append(row.key)
    return claimed
