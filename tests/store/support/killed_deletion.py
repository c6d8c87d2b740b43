"""A process that deletes a record with many dependents until it is killed. A separate module, since
new processes import it by name."""

import asyncio

from keyhouse.clock import ManualClock
from keyhouse.engines.sqlite import SqliteEngine
from keyhouse.store import Store
from keyhouse.testing.faults import FaultyEngine
from tests.store.support.linked_schema import PERSON, SCHEMA

COMMIT_ROWS = 8
"""Few enough that the deletion takes many commits."""


def delete(path: str, now: int) -> None:
    """Delete at a time when the lease of the process before this one has expired."""
    asyncio.run(_delete(path, now))


async def _delete(path: str, now: int) -> None:
    clock = ManualClock(now)
    engine = FaultyEngine(SqliteEngine.open(path, clock=clock), rows=COMMIT_ROWS)
    await Store(SCHEMA, engine, "space").delete(PERSON, id="ada")
    await engine.close()
