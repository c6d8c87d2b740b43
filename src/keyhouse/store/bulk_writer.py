"""Rows on their way into an engine: as many in one commit as it takes, sent again when the engine is away for a while.

Only puts and deletes go this way, which are the same done twice: so an unknown outcome is simply tried again.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from keyhouse.engine import Batch, Engine, Put
from keyhouse.errors import UnavailableError, UnknownOutcomeError

COMMIT_ROWS: Final = 2_000
COMMIT_BYTES: Final = 2 * 1_024 * 1_024
"""Enough in one commit that its sync does not count; little enough that the engine's other callers do not notice."""

ATTEMPTS: Final = 6
PAUSE_SECONDS: Final = 0.1
"""Before the second attempt; twice as long before each further one."""


class BatchBuilder:
    """What goes into one commit together: no more than the engine takes, nor than its other callers would notice."""

    def __init__(self, target: Engine) -> None:
        self._rows_max = min(COMMIT_ROWS, target.capabilities.commit_rows_max)
        self._bytes_max = min(COMMIT_BYTES, target.capabilities.commit_bytes_max)
        self._puts: list[Put] = []
        self._deletes: list[str] = []
        self._bytes = 0

    def put(self, put: Put) -> Batch | None:
        """Add a row. The batch that was full before it, if it was: commit that."""
        size = 4 * len(put.key) + len(put.value)  # a character of a key is 4 bytes at most
        full = self.taken() if self._bytes + size > self._bytes_max else self._full()
        self._puts.append(put)
        self._bytes += size
        return full

    def delete(self, key: str) -> Batch | None:
        full = self._full()
        self._deletes.append(key)
        return full

    def _full(self) -> Batch | None:
        return self.taken() if len(self._puts) + len(self._deletes) >= self._rows_max else None

    def taken(self) -> Batch | None:
        """What is in it, which it then no longer is; `None`: nothing."""
        if not self._puts and not self._deletes:
            return None
        batch = Batch(puts=tuple(self._puts), deletes=tuple(self._deletes))
        self._puts, self._deletes, self._bytes = [], [], 0
        return batch


class BulkWriter:
    """The rows of one space that wait to be committed. No key is given twice."""

    def __init__(self, target: Engine, space: str) -> None:
        self._target = target
        self._space = space
        self._load = BatchBuilder(target)

    async def put(self, put: Put) -> None:
        await self._commit(self._load.put(put))

    async def delete(self, key: str) -> None:
        await self._commit(self._load.delete(key))

    async def flush(self) -> None:
        await self._commit(self._load.taken())

    async def _commit(self, batch: Batch | None) -> None:
        if batch is not None:
            await commit_with_retry(self._target, self._space, batch)


def batches(target: Engine, puts: Sequence[Put]) -> Iterator[Batch]:
    """The same rows as commits."""
    load = BatchBuilder(target)
    for batch in (*map(load.put, puts), load.taken()):
        if batch is not None:
            yield batch


async def commit_with_retry(target: Engine, space: str, batch: Batch) -> None:
    for attempt in range(1, ATTEMPTS):
        try:
            await target.commit(space, batch)
            return
        except (UnavailableError, UnknownOutcomeError):
            await asyncio.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
    await target.commit(space, batch)
