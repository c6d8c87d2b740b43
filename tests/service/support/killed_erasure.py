"""Processes that delete an owner, or forget a space, until they are killed. A separate module,
since new processes import it by name."""

import asyncio

from keyhouse.clock import ManualClock
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.store import Store
from keyhouse.testing.faults import FaultyEngine, meanwhile
from tests.store.support.linked_schema import PERSON, SCHEMA

COMMIT_ROWS = 8
"""Few enough that the work takes many commits."""

COMMITS = 20
"""Then it waits to be killed."""


def erase(path: str, work: str, now: int) -> None:
    """Work at a time whose leases have expired by now, until the process is killed."""
    asyncio.run(_erase(path, work, now))


async def _erase(path: str, work: str, now: int) -> None:
    commits = 0

    async def wait() -> None:
        nonlocal commits
        commits += 1
        await asyncio.sleep(0.005 if commits <= COMMITS else 600)

    slow = meanwhile(None, wait, call="commit")
    engine = FaultyEngine(SqliteEngine.open(path, clock=ManualClock(now)), slow, rows=COMMIT_ROWS)
    if work == "delete":
        await Store(SCHEMA, engine, "space").delete(PERSON, id="ada")
    else:
        await Store(SCHEMA, engine, "gone").forget()
    await engine.close()
