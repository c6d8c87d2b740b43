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


class Writes:
    """The rows of one space that wait to be committed. No key is given twice."""

    def __init__(self, target: Engine, space: str) -> None:
        self._target = target
        self._space = space
        self._puts: list[Put] = []
        self._deletes: list[str] = []
        self._bytes = 0
        self._rows_max = min(COMMIT_ROWS, target.capabilities.commit_rows_max)
        self._bytes_max = min(COMMIT_BYTES, target.capabilities.commit_bytes_max)

    async def put(self, put: Put) -> None:
        size = len(put.key) + len(put.value)
        if self._bytes + size > self._bytes_max:
            await self.flush()
        self._puts.append(put)
        await self._added(size)

    async def delete(self, key: str) -> None:
        self._deletes.append(key)
        await self._added(0)

    async def _added(self, size: int) -> None:
        self._bytes += size
        if len(self._puts) + len(self._deletes) >= self._rows_max:
            await self.flush()

    async def flush(self) -> None:
        if self._puts or self._deletes:
            batch = Batch(puts=tuple(self._puts), deletes=tuple(self._deletes))
            self._puts, self._deletes, self._bytes = [], [], 0
            await commit_patiently(self._target, self._space, batch)


def batches(target: Engine, puts: Sequence[Put]) -> Iterator[Batch]:
    """The same rows as commits that the engine takes, and its other callers do not notice."""
    rows_max = min(COMMIT_ROWS, target.capabilities.commit_rows_max)
    bytes_max = min(COMMIT_BYTES, target.capabilities.commit_bytes_max)
    start = size = 0
    for at, put in enumerate(puts):
        more = 4 * len(put.key) + len(put.value)
        if at > start and (at - start == rows_max or size + more > bytes_max):
            yield Batch(puts=tuple(puts[start:at]))
            start, size = at, 0
        size += more
    if start < len(puts):
        yield Batch(puts=tuple(puts[start:]))


async def commit_patiently(target: Engine, space: str, batch: Batch) -> None:
    for attempt in range(1, ATTEMPTS):
        try:
            await target.commit(space, batch)
            return
        except (UnavailableError, UnknownOutcomeError):
            await asyncio.sleep(PAUSE_SECONDS * 2 ** (attempt - 1))
    await target.commit(space, batch)
