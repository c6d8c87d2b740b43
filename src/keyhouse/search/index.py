"""The search of a service: followers of the spaces in use, and queries."""

import asyncio
import hashlib
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeVar

import apsw
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from keyhouse.advice.nearest import nearest
from keyhouse.errors import LimitError, UnavailableError, UsageError
from keyhouse.scheduling.timing import Timing
from keyhouse.schema import Record
from keyhouse.search.file import SearchFile
from keyhouse.search.follower import SpaceFollower
from keyhouse.search.limits import SEARCH_HITS_MAX, SEARCH_SPACES_OPEN_MAX
from keyhouse.search.query import match_expression, parse_query
from keyhouse.search.results import SearchHit, SearchPage
from keyhouse.search.schema import SearchSchema
from keyhouse.store import Store

__all__ = ["SearchIndex"]

WAIT_SECONDS: Final = 5.0
"""Time for which a search waits for its file, or for a revision."""

R = TypeVar("R")

INLINE_DOCUMENTS_MAX: Final = 20_000
INLINE_SECONDS: Final = 0.001
"""Documents and time of a search on the event loop."""

_SLUG = re.compile(r"[^a-z0-9]+")


class SearchIndex:
    """Put `index.run` among the tasks of the service: it closes the files at shutdown.

    `folder` holds the files, readable by this user only. `store` is the store, or a function that
    returns the one of a space. A space is followed from its first use on; of more than `spaces_max`
    the least recently used are closed, and catch up when they are used again.
    """

    def __init__(
        self,
        schema: SearchSchema,
        folder: Path,
        store: Store | Callable[[str], Store],
        *,
        spaces_max: int = SEARCH_SPACES_OPEN_MAX,
    ) -> None:
        self.schema = schema
        self._folder = folder
        self._store = store
        self._spaces_max = spaces_max
        self.followers: OrderedDict[str, SpaceFollower] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()
        self._rebuilds = 0
        self._timing = Timing()
        self._weights = list(schema.fields.values())
        self._names = [source.record.name for source in schema.sources]
        name = f"keyhouse-search-{schema.name}"
        self._writer = ThreadPoolExecutor(1, thread_name_prefix=f"{name}-write")
        self._readers = ThreadPoolExecutor(2, thread_name_prefix=name)

    async def run(self) -> None:
        """Follow a single store from now on, and close the files when cancelled."""
        try:
            if isinstance(self._store, Store):
                self._follower("")
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """Close all files. They are opened again when they are used."""
        followers = list(self.followers.values())
        self.followers.clear()
        await asyncio.gather(*(self._close(each) for each in followers), *self._closing)

    async def search(
        self,
        query: str,
        *,
        space: str = "",
        fields: Sequence[str] = (),
        records: Sequence[Record[Any]] = (),
        filters: Mapping[str, str | Sequence[str]] | None = None,
        limit: int = 50,
        offset: int = 0,
        prefix: bool = True,
        count: bool = False,
        after: int = 0,
        timeout_seconds: float = WAIT_SECONDS,
    ) -> SearchPage:
        """Return the records that have all words of the query, best first.

        Any text is a valid query; one without a word finds nothing, unless it is blank and there
        are filters. `fields` and `records` restrict the search, `filters` are values that a record
        must all have. `prefix`: the last word may be the start of a longer one. `after` is a
        revision that must be found, such as that of the caller's own write. Raises UnavailableError
        if that takes longer than the timeout, or if the file is still being built, and UsageError
        if the store has no such revision.
        """
        terms = parse_query(query)
        columns = self._columns(fields)
        sources = self._sources(records)
        _check_page(limit, offset)
        wanted = [
            (name, value)
            for name, values in (filters or {}).items()
            for value in ([values] if isinstance(values, str) else values)
        ]
        store = self._store_of(space)
        follower, now = self._follower(space), store.engine.clock.now()
        if after > follower.revision:
            newest = await store.revision()
            if after > newest:
                raise UsageError("The store has no such revision.", after=after, newest=newest)
        await follower.reach(after, timeout_seconds)
        if not terms and (query.strip() or not wanted):
            return SearchPage([], 0 if count else None, follower.revision)
        match = match_expression(terms, prefix=prefix, columns=columns) if terms else None
        start = perf_counter()
        search = partial(
            SearchFile.search,
            match=match,
            weights=self._weights,
            now=now,
            sources=sources,
            filters=wanted,
            limit=limit,
            offset=offset,
            count=count,
        )
        (rows, total), revision = await self._read(follower, search)
        self._timing.add(perf_counter() - start)
        hits = [
            SearchHit(self._names[source], key, follower.fields_of(source, key), score)
            for source, key, score in rows
        ]
        return SearchPage(hits, total, revision)

    async def forget(self, space: str = "") -> None:
        """Delete the file of a space. It is built again when the space is searched again."""
        follower = self._follower(space)
        del self.followers[space]
        await self._close(follower, delete=True)

    async def _read(self, follower: SpaceFollower, read: Callable[..., R]) -> tuple[R, int]:
        """Read the file; return the result with the file's revision.

        A search of a small file is faster than the switch to a thread and back: it is tried at
        once, for a millisecond. Others run in a thread, one at a time in a space.
        """
        try:
            file = follower.file
            if (
                file is not None
                and file.documents <= INLINE_DOCUMENTS_MAX
                and not follower.reading.locked()
            ):
                with suppress(apsw.InterruptError):
                    return read(file, budget_seconds=INLINE_SECONDS), follower.revision
            async with follower.reading:
                file, revision = follower.file, follower.revision
                if file is None:
                    raise UnavailableError("The search index is being built; try again later.")
                loop = asyncio.get_running_loop()
                reading = loop.run_in_executor(self._readers, read, file)
                try:
                    return await asyncio.shield(reading), revision
                except asyncio.CancelledError:
                    await asyncio.wait([reading])  # the connection is in use until then
                    raise
        except (apsw.CorruptError, apsw.NotADBError) as error:
            await follower.repair()
            raise UnavailableError("The search index was damaged and is built again.") from error
        except apsw.Error as error:
            raise UnavailableError("The search index cannot be read.") from error

    # Spaces

    def _follower(self, space: str) -> SpaceFollower:
        follower = self.followers.get(space)
        if follower is None:
            path, store = self._path(space), self._store_of(space)
            follower = SpaceFollower(self.schema, store, path, self._writer)
            self.followers[space] = follower
            if len(self.followers) > self._spaces_max:
                _, oldest = self.followers.popitem(last=False)
                closing = asyncio.create_task(self._close(oldest))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
        self.followers.move_to_end(space)
        return follower

    async def _close(self, follower: SpaceFollower, *, delete: bool = False) -> None:
        await follower.close(delete=delete)
        self._rebuilds += follower.rebuilds

    def _store_of(self, space: str) -> Store:
        return self._store if isinstance(self._store, Store) else self._store(space)

    def _path(self, space: str) -> Path:
        """Return the file of a space: a readable part, and a hash that tells spaces apart."""
        name = self._store_of(space).space
        slug = _SLUG.sub("-", name.lower())[:40].strip("-")
        digest = hashlib.sha256(name.encode()).hexdigest()[:16]
        return self._folder / f"{self.schema.name}-{slug}-{digest}.db"

    # Arguments

    def _columns(self, fields: Sequence[str]) -> list[str]:
        for field in fields:
            if field not in self.schema.fields:
                raise UsageError(
                    "The search has no such field.",
                    field=field,
                    **nearest(field, self.schema.fields),
                )
        return [f"text_{field}" for field in fields]

    def _sources(self, records: Sequence[Record[Any]]) -> list[int]:
        known = [source.record for source in self.schema.sources]
        for record in records:
            if record not in known:
                raise UsageError("The search has no such record.", record=repr(record))
        return [known.index(record) for record in records]

    # Metrics

    def collect(self) -> Iterator[Metric]:
        name = f"{self.schema.name}_search"
        seconds = HistogramMetricFamily(f"{name}_seconds", "Duration of searches.")
        seconds.add_metric([], self._timing.rising(), self._timing.seconds)
        yield seconds
        yield GaugeMetricFamily(
            f"{name}_spaces", "Spaces whose search file is open.", value=len(self.followers)
        )
        rebuilds = self._rebuilds + sum(each.rebuilds for each in self.followers.values())
        yield CounterMetricFamily(
            f"{name}_rebuilds", "Search files built, at first or again.", value=rebuilds
        )


def _check_page(limit: int, offset: int) -> None:
    if not 1 <= limit <= SEARCH_HITS_MAX:
        raise LimitError("Invalid number of hits.", given=limit, limit=SEARCH_HITS_MAX)
    if not 0 <= offset <= 2**31:
        raise UsageError("An offset is a whole number from 0 on.", offset=offset)
