"""The engine of a service: its calls are timed, and large reads are counted and take turns.

A store passes `bytes_max` with every read that may be large, and with no other: see
`keyhouse.store.reads.long_read`. Here such a read waits for a turn of the event loop
(`scheduling.work_turns`), and is reported to the meter of its request. The rows of an index are
read before their records, without `bytes_max`: they are free. A watch takes turns as well. The
changes that it delivers until it has caught up are a long read; those that follow are free.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from time import perf_counter

from keyhouse.engine import Batch, CaughtUp, Change, Engine, Page, Row, Span
from keyhouse.engines.wrapper import EngineWrapper
from keyhouse.http.read_meter import report_read
from keyhouse.scheduling.timing import Timing
from keyhouse.scheduling.work_turns import work_turns

__all__ = ["ServedEngine"]


class ServedEngine(EngineWrapper):
    """Counts and times `read`, `scan` and `commit`, whether or not a commit's checks held."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._read, self._scan, self._commit = engine.read, engine.scan, engine.commit
        self.reads, self.scans, self.commits = Timing(), Timing(), Timing()

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        if bytes_max is not None:
            await _enter(space, len(keys))
        start = perf_counter()
        try:
            rows = await (
                self._read(space, keys)
                if bytes_max is None
                else self._read(space, keys, bytes_max=bytes_max)
            )
        except BaseException:
            self.reads.failures += 1
            raise
        self.reads.add(perf_counter() - start)
        if bytes_max is not None:
            _leave(rows)
        return rows

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        if bytes_max is not None:
            await _enter(space, limit)
        start = perf_counter()
        try:
            page = await self._scan(
                space,
                span,
                limit=limit,
                reverse=reverse,
                keys_only=keys_only,
                bytes_max=bytes_max,
            )
        except BaseException:
            self.scans.failures += 1
            raise
        self.scans.add(perf_counter() - start)
        if bytes_max is not None:
            _leave(page.rows)
        return page

    async def commit(self, space: str, batch: Batch) -> int | None:
        start = perf_counter()
        try:
            revision = await self._commit(space, batch)
        except BaseException:
            self.commits.failures += 1
            raise
        self.commits.add(perf_counter() - start)
        return revision

    async def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        turns, is_behind = work_turns(), since is not None

        def note(revision: int) -> None:
            nonlocal is_behind
            is_behind = False
            if caught_up is not None:
                caught_up(revision)

        watch = self._engine.watch(space, span, since=since, caught_up=note)
        async with aclosing(watch) as changes:
            async for change in changes:
                size = 0 if change.value is None else len(change.value)
                if (turn := turns.watch(space, size)) is not None:
                    await turn
                if is_behind:
                    report_read(1, size)
                yield change


async def _enter(space: str, rows: int) -> None:
    if (turn := work_turns().enter(space, rows)) is not None:
        await turn


def _leave(rows: Sequence[Row | None]) -> None:
    size = sum([len(row.value) for row in rows if row is not None])
    work_turns().leave(size)
    report_read(len(rows), size)
