"""Write imported rows to a store: read the stored rows first, and write only those that differ.

While some rows are committed, the next ones are read and compared. The commits of one call run
concurrently, so that an engine can group them, and finish before those of the next call start.
Within a call each key is written once. So the later line of a key wins.
"""

import asyncio
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final

from keyhouse.engine import Batch, Engine, Put, Row, Span
from keyhouse.store.transfer.bulk_writer import batches, commit_with_retry
from keyhouse.store.transfer.jsonl import ExportedRow

READ_ROWS: Final = 250
"""Stored rows read in one call: they may be larger than the imported ones."""


class ImportWriter:
    """A context manager; on a normal exit all rows are committed.

    `written`, `replaced` and `expired` count rows; the replaced ones are among the written. With
    `dry_run`, rows are counted and nothing is committed.
    """

    def __init__(self, engine: Engine, *, dry_run: bool = False) -> None:
        self._engine = engine
        self._dry_run = dry_run
        self._space: str | None = None
        self._was_empty = False
        self._commits: asyncio.Task[None] | None = None
        self.written = 0
        self.replaced = 0
        self.expired = 0

    async def __aenter__(self) -> "ImportWriter":
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self._drain()
        elif self._commits is not None:
            self._commits.cancel()
            await asyncio.gather(self._commits, return_exceptions=True)  # `error` is the first one

    async def put(self, lines: Sequence[ExportedRow]) -> None:
        work: list[tuple[str, Batch]] = []
        puts: dict[str, dict[str, Put]] = {}
        for line in lines:
            puts.setdefault(line.space, {})[line.put.key] = line.put
        for space, newest in puts.items():
            differing = await self._differing(space, newest)
            work += [(space, batch) for batch in batches(self._engine, differing)]
        await self._drain()
        if work and not self._dry_run:
            self._commits = asyncio.create_task(self._commit(work))

    async def _differing(self, space: str, puts: dict[str, Put]) -> list[Put]:
        """Return the rows that have not expired and are not stored already."""
        now = self._engine.clock.now()
        live = {key: put for key, put in puts.items() if put.expires is None or put.expires > now}
        self.expired += len(puts) - len(live)
        if not await self._is_new(space):
            await self._drain()
            rows = [row for keys in _chunks(list(live)) for row in await self._read(space, keys)]
            stored = {row.key: row for row in rows}
            live = {key: put for key, put in live.items() if not _same(stored.get(key), put)}
            self.replaced += sum(key in stored for key in live)
        self.written += len(live)
        return list(live.values())

    async def _is_new(self, space: str) -> bool:
        """Return True if the space was empty before its first imported row."""
        if space != self._space:
            self._space = space
            self._was_empty = not (
                await self._engine.scan(space, Span(), limit=1, keys_only=True)
            ).rows
        return self._was_empty

    async def _read(self, space: str, keys: list[str]) -> list[Row]:
        """Return the stored rows at these keys. Sorted keys, as in an export, take one scan."""
        found: list[Row] = []
        if all(map(str.__lt__, keys, keys[1:])):
            page = await self._engine.scan(space, Span(keys[0], keys[-1] + "\0"), limit=len(keys))
            found, last = page.rows, page.rows[-1].key if page.more else keys[-1]
            keys = [key for key in keys if key > last]
        more = await self._engine.read(space, keys) if keys else []
        return [*found, *(row for row in more if row is not None)]

    async def _commit(self, work: list[tuple[str, Batch]]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for space, batch in work:
                    group.create_task(commit_with_retry(self._engine, space, batch))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _drain(self) -> None:
        """Wait for the commits in flight."""
        commits, self._commits = self._commits, None
        if commits is not None:
            await commits


def _chunks(keys: list[str]) -> Iterator[list[str]]:
    return (keys[at : at + READ_ROWS] for at in range(0, len(keys), READ_ROWS))


def _same(row: Row | None, put: Put) -> bool:
    return row is not None and row.value == put.value and row.expires == put.expires
