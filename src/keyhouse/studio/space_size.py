"""The size of a space, in total and by record: counted for a moment, or to its end."""

from contextlib import aclosing
from time import perf_counter
from typing import Final

import msgspec

from keyhouse.store import Store

COUNT_SECONDS: Final = 0.05
"""Time that a page may spend on counting rows; then it shows a lower bound."""

_LOOKED_AT: Final = 256
"""Rows after which a count looks at the time."""


class SpaceSize(msgspec.Struct):
    """Rows, and bytes of keys and values. `is_exact` is false if counting was cut off: then there
    are at least as many."""

    rows: int = 0
    bytes: int = 0
    is_exact: bool = True


class RecordSizes:
    """The sizes of a space's parts. `other` are rows of no record that the schemas declare."""

    def __init__(self) -> None:
        self.total = SpaceSize()
        self.newest = NewestRevision()
        self.other = SpaceSize()
        self._sizes: dict[tuple[str, bool], SpaceSize] = {}

    def of(self, record: str, *, derived: bool = False) -> SpaceSize:
        """Return the size of a record's rows, or of the rows derived from it."""
        size = self._sizes.setdefault((record, derived), SpaceSize())
        size.is_exact = self.total.is_exact
        return size


async def count(store: Store, deadline: float) -> SpaceSize:
    """Count the rows of a space, until `perf_counter()` passes the deadline."""
    size = SpaceSize()
    async for page in store.usage():
        size.rows += page.keys
        size.bytes += page.bytes
        if page.through is not None and perf_counter() > deadline:
            size.is_exact = False
            break
    return size


class NewestRevision(msgspec.Struct):
    """The newest revision of a space's rows. `is_exact` is false if reading was cut off: then it is
    at least that."""

    revision: int = 0
    is_exact: bool = True


async def newest_revision(store: Store, deadline: float) -> NewestRevision:
    """Read the revisions of a space's rows, until `perf_counter()` passes the deadline. The
    engine's own newest revision may be that of another space."""
    newest = NewestRevision()
    rows = 0
    async with aclosing(store.row_scan(keys_only=True)) as found:
        async for row in found:
            newest.revision = max(newest.revision, row.revision)
            rows += 1
            if rows % _LOOKED_AT == 0 and perf_counter() > deadline:
                newest.is_exact = False
                break
    return newest


async def count_by_record(stores: list[Store], deadline: float) -> RecordSizes:
    """Count the rows of a space by record, until `perf_counter()` passes the deadline.

    Rows are read in the order of their keys: a count that was cut off has none of the last ones.
    """
    sizes = RecordSizes()
    declared = {record.name for store in stores for record in store.schema.records}
    async with aclosing(stores[0].row_scan()) as rows:
        async for row in rows:
            match = next(filter(None, (store.schema.find(row.key) for store in stores)), None)
            sizes.newest.revision = max(sizes.newest.revision, row.revision)
            part = sizes.other
            if match is not None and match.record.name in declared:
                part = sizes.of(match.record.name, derived=not match.is_record)
            for size in (sizes.total, part):
                size.rows += 1
                size.bytes += len(row.key.encode()) + len(row.value)
            if sizes.total.rows % _LOOKED_AT == 0 and perf_counter() > deadline:
                sizes.total.is_exact = sizes.other.is_exact = sizes.newest.is_exact = False
                break
    return sizes
