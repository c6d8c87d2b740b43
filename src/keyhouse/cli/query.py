"""The rows that `list`, `scan`, `count` and `watch` are asked for."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from keyhouse.cli.place import Place, place_of_space, url_of
from keyhouse.cli.rows import Shown, filter_of, shown, span_of, walked
from keyhouse.cli.target import target
from keyhouse.engine import Engine, Row
from keyhouse.keys import Span
from keyhouse.schema import Record


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """As the options say it."""

    system: str
    prefix: str = ""
    only: str | None = None
    limit: int | None = None
    after: str | None = None
    reverse: bool = False
    space: str | None = None
    store: str | None = None
    data: Path | None = None

    @property
    def url(self) -> str:
        return url_of(self.system, self.store, self.data)

    @property
    def place(self) -> Place:
        return place_of_space(target(self.system), self.space)

    @property
    def span(self) -> Span:
        span = span_of(self.prefix)
        if self.after is None:
            return span
        return span.before(self.after) if self.reverse else span.after(self.after)


async def found(
    query: Query, engine: Engine, *, keys_only: bool = False, resolve: bool = False
) -> AsyncIterator[Shown]:
    """The rows, each as it is shown. `resolve`: of a derived row, the records that it leads to."""
    place, count = query.place, 0
    passes = filter_of(place.schema, query.only)
    async for row in walked(engine, place.space, query.span, reverse=query.reverse, keys_only=keys_only):
        if not passes(row.key):
            continue
        for each in await _records(place, engine, row) if resolve else [row]:
            yield shown(place.schema, place.space, each, keys_only=keys_only)
            count += 1
            if count == query.limit:
                return


async def counted(query: Query, engine: Engine) -> int:
    passes = filter_of(query.place.schema, query.only)
    walk = walked(engine, query.place.space, query.span, keys_only=True)
    return sum([1 async for row in walk if passes(row.key)])


async def _records(place: Place, engine: Engine, row: Row) -> list[Row]:
    """The records behind a derived row, those that are there; any other row itself."""
    what = place.schema.find(row.key)
    if what is None or isinstance(what.declared, Record):
        return [row]
    record: Record[Any] = what.record
    keys = [record.template.join(values) for owners in what.declared.owners(row.key, row.value) for values in owners]
    rows = await engine.read(place.space, keys) if keys else []
    return [there for there in rows if there is not None]
