"""Bulk writes of raw rows: as many per commit as the engine takes, retried while the engine is
unavailable.

Only puts and deletes are written like this. They are idempotent, so an unknown outcome is simply
retried.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from keyhouse.engine import Batch, Engine, Put
from keyhouse.errors import UnavailableError, UnknownOutcomeError

COMMIT_ROWS: Final = 2_000
COMMIT_BYTES: Final = 2 * 1_024 * 1_024
"""Large enough that the cost of a sync is spread; small enough not to delay the engine's other
callers."""

ATTEMPTS: Final = 6
PAUSE_SECONDS: Final = 0.1
"""Backoff before the second attempt; it doubles before each further one."""


class BatchBuilder:
    """Collects rows for one commit, within the limits of the engine and of COMMIT_ROWS and
    COMMIT_BYTES."""

    def __init__(self, target: Engine) -> None:
        self._rows_max = min(COMMIT_ROWS, target.capabilities.commit_rows_max)
        self._bytes_max = min(COMMIT_BYTES, target.capabilities.commit_bytes_max)
        self._puts: list[Put] = []
        self._deletes: list[str] = []
        self._bytes = 0

    def put(self, put: Put) -> Batch | None:
        """Add a row. Returns the batch that was full before it, to be committed; else None."""
        size = 4 * len(put.key) + len(put.value)  # a character of a key is 4 bytes at most
        full = self.take() if self._bytes + size > self._bytes_max else self._full()
        self._puts.append(put)
        self._bytes += size
        return full

    def delete(self, key: str) -> Batch | None:
        full = self._full()
        self._deletes.append(key)
        return full

    def _full(self) -> Batch | None:
        return self.take() if len(self._puts) + len(self._deletes) >= self._rows_max else None

    def take(self) -> Batch | None:
        """Remove and return the buffered batch; None if it is empty."""
        if not self._puts and not self._deletes:
            return None
        batch = Batch(puts=tuple(self._puts), deletes=tuple(self._deletes))
        self._puts, self._deletes, self._bytes = [], [], 0
        return batch


class BulkWriter:
    """Buffers rows of one space and commits them in batches. Each key may be given once."""

    def __init__(self, target: Engine, space: str) -> None:
        self._target = target
        self._space = space
        self._builder = BatchBuilder(target)

    async def put(self, put: Put) -> None:
        await self._commit(self._builder.put(put))

    async def delete(self, key: str) -> None:
        await self._commit(self._builder.delete(key))

    async def flush(self) -> None:
        await self._commit(self._builder.take())

    async def _commit(self, batch: Batch | None) -> None:
        if batch is not None:
            await commit_with_retry(self._target, self._space, batch)


def batches(target: Engine, puts: Sequence[Put]) -> Iterator[Batch]:
    """Split rows into batches."""
    builder = BatchBuilder(target)
    for batch in (*map(builder.put, puts), builder.take()):
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
