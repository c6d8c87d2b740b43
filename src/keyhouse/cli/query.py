"""The rows of a store that `list`, `scan` and `count` are asked for."""

from collections.abc import AsyncIterator
from typing import Any

from keyhouse.cli.options import Query, Selection
from keyhouse.cli.place import Place
from keyhouse.cli.rows import Shown, filter_of, shown, span_of, walked
from keyhouse.engine import Engine, Row
from keyhouse.keys import Span
from keyhouse.schema import Record


def span(query: Query) -> Span:
    within = span_of(query.prefix)
    if query.after is None:
        return within
    return within.before(query.after) if query.reverse else within.after(query.after)


async def found(
    query: Query, place: Place, engine: Engine, *, keys_only: bool = False, resolve: bool = False
) -> AsyncIterator[Shown]:
    """The rows, each as it is shown. `resolve`: of a derived row, the records that it leads to."""
    passes, count = filter_of(place.schema, query.only), 0
    async for row in walked(
        engine, place.space, span(query), reverse=query.reverse, keys_only=keys_only
    ):
        if not passes(row.key):
            continue
        for each in await _records(place, engine, row) if resolve else [row]:
            yield shown(place.schema, place.space, each, keys_only=keys_only)
            count += 1
            if count == query.limit:
                return


async def counted(selection: Selection, place: Place, engine: Engine) -> int:
    passes = filter_of(place.schema, selection.only)
    walk = walked(engine, place.space, span_of(selection.prefix), keys_only=True)
    return sum([1 async for row in walk if passes(row.key)])


async def _records(place: Place, engine: Engine, row: Row) -> list[Row]:
    """The records behind a derived row, those that are there; any other row itself."""
    what = place.schema.find(row.key)
    if what is None or isinstance(what.declared, Record):
        return [row]
    record: Record[Any] = what.record
    keys = [
        record.template.join(values)
        for owners in what.declared.owners(row.key, row.value)
        for values in owners
    ]
    rows = await engine.read(place.space, keys) if keys else []
    return [there for there in rows if there is not None]
