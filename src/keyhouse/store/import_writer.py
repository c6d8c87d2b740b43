"""Rows on their way from a file into a store: looked for first, and written where they are not there or differ.

While some rows are committed, the next are read and compared: the commits of one call are under way together, so that an
engine can let them share a sync, and have ended before those of the next begin. Within a call a key is written once. So the
later line of a key wins.
"""

import asyncio
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final

from keyhouse.engine import Batch, Engine, Put, Row, Span
from keyhouse.store.bulk_writer import batches, commit_with_retry
from keyhouse.store.jsonl import ExportedRow

LOOK_ROWS: Final = 250
"""Rows of the store that are looked at in one call: what lies there may be larger than what comes."""


class ImportWriter:
    """A context: when it is left in good order, all that was given is committed. `written` and `expired` count rows, and
    `replaced` those of the written that went over others. `dry_run`: they are counted, and nothing is committed."""

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
            await self._settle()
        elif self._commits is not None:
            self._commits.cancel()
            await asyncio.gather(
                self._commits, return_exceptions=True
            )  # the first error is the one that is told

    async def put(self, lines: Sequence[ExportedRow]) -> None:
        work: list[tuple[str, Batch]] = []
        puts: dict[str, dict[str, Put]] = {}
        for line in lines:
            puts.setdefault(line.space, {})[line.put.key] = line.put
        for space, newest in puts.items():
            wanted = await self._wanted(space, newest)
            work += [(space, batch) for batch in batches(self._engine, wanted)]
        await self._settle()
        if work and not self._dry_run:
            self._commits = asyncio.create_task(self._commit(work))

    async def _wanted(self, space: str, puts: dict[str, Put]) -> list[Put]:
        """Those that have not expired, and are not there already."""
        now = self._engine.clock.now()
        live = {key: put for key, put in puts.items() if put.expires is None or put.expires > now}
        self.expired += len(puts) - len(live)
        if not await self._is_new(space):
            await self._settle()
            found = [row for keys in _parts(list(live)) for row in await self._there(space, keys)]
            there = {row.key: row for row in found}
            live = {key: put for key, put in live.items() if not _same(there.get(key), put)}
            self.replaced += sum(key in there for key in live)
        self.written += len(live)
        return list(live.values())

    async def _is_new(self, space: str) -> bool:
        """Whether it held nothing when its rows began to come."""
        if space != self._space:
            self._space = space
            self._was_empty = not (
                await self._engine.scan(space, Span(), limit=1, keys_only=True)
            ).rows
        return self._was_empty

    async def _there(self, space: str, keys: list[str]) -> list[Row]:
        """What the store has at these keys. Keys in order, as in an export, are found by one scan."""
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

    async def _settle(self) -> None:
        commits, self._commits = self._commits, None
        if commits is not None:
            await commits


def _parts(keys: list[str]) -> Iterator[list[str]]:
    return (keys[at : at + LOOK_ROWS] for at in range(0, len(keys), LOOK_ROWS))


def _same(row: Row | None, put: Put) -> bool:
    return row is not None and row.value == put.value and row.expires == put.expires
