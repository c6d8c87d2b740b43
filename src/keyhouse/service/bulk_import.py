"""Imports of checked entries into the stores of tenants, within their quotas.

The entries are written over stored ones, in commits that every engine accepts. An import that is
interrupted can be run again: entries that are already stored are left as they are.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator
from typing import Any, Final

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import LimitError, RecordError
from keyhouse.schema import Record
from keyhouse.service.tenants import Tenant
from keyhouse.service.usage import Reservation, Size, row_size
from keyhouse.store import Store, Transaction

__all__ = [
    "ImportCounts",
    "ImportEntry",
    "collect_entries",
    "count_replaced",
    "import_entries",
    "reject_duplicates",
]

_COMMIT_ENTRIES: Final = 25
"""Entries of one commit: each may put a row and delete one, and DynamoDB commits 100 rows, checks
included."""


class ImportEntry(msgspec.Struct, frozen=True):
    """A record as it will be stored, with its own times; `key` is that of the file.

    `fields` are those of its key that the tenant does not fix. An entry without a value expired
    before the file was made.
    """

    key: str
    tenant: str
    record: Record[Any]
    fields: dict[str, str]
    value: Any = None
    expires: int | None = None

    def is_live(self, now: int) -> bool:
        """Return whether there is a value to store, and it has not expired."""
        return self.value is not None and (self.expires is None or self.expires > now)

    async def stored_row(self, store: Store) -> Row | None:
        """Return the row that it would replace, or None."""
        return await store.record_row(self.record, **self.fields)


class ImportCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a file: written, stored already, and expired, or without a value because they had
    expired."""

    written: int = 0
    unchanged: int = 0
    expired: int = 0

    def __add__(self, other: "ImportCounts") -> "ImportCounts":
        return ImportCounts(
            written=self.written + other.written,
            unchanged=self.unchanged + other.unchanged,
            expired=self.expired + other.expired,
        )


async def collect_entries(parsed: Iterator[ImportEntry]) -> list[ImportEntry]:
    """Parse thousands of entries, and let other tasks run meanwhile."""
    entries: list[ImportEntry] = []
    for each in parsed:
        entries.append(each)
        if len(entries) % _COMMIT_ENTRIES == 0:
            await asyncio.sleep(0)
    return entries


async def import_entries(tenant: Tenant, entries: list[ImportEntry]) -> ImportCounts:
    """Write the entries over stored ones. Each must be of this tenant, and of another record than
    the others."""
    kind = tenant.store.schema.space.field or "tenant"
    for number, each in enumerate(entries):
        if each.tenant != tenant.name:
            raise RecordError(f"The key is of another {kind}.", entry=number)
    reject_duplicates(entries, kind)
    now = tenant.store.engine.clock.now()
    live = [each for each in entries if each.is_live(now)]
    usage = tenant.usage
    reservation = None if usage is None else await usage.reserve(await _growth(tenant, live))
    written = 0
    try:
        for start in range(0, len(live), _COMMIT_ENTRIES):
            written += await _commit(tenant, live[start : start + _COMMIT_ENTRIES], reservation)
    finally:
        if usage is not None and reservation is not None:
            usage.release(reservation)
    return ImportCounts(
        written=written, unchanged=len(live) - written, expired=len(entries) - len(live)
    )


async def count_replaced(store: Store, entries: Iterable[ImportEntry]) -> int:
    """Return how many of the entries would replace a different stored record."""
    count, now = 0, store.engine.clock.now()
    for each in entries:
        if each.is_live(now):
            row = await each.stored_row(store)
            value = each.record.json.encode(each.value)
            count += row is not None and (row.value, row.expires) != (value, each.expires)
    return count


def reject_duplicates(entries: Collection[ImportEntry], kind: str) -> None:
    """Raise RecordError if two entries are of the same record, at whatever key of it. `kind` is the
    word for a tenant."""
    seen: set[tuple[str, ...]] = set()
    for each in entries:
        name = (each.tenant, each.record.name, *each.fields.values())
        if name in seen:
            raise RecordError(
                "The file has two entries for one record: remove one.",
                **{kind: each.tenant, "type": each.record.name, **each.fields},
            )
        seen.add(name)


async def _commit(
    tenant: Tenant, entries: list[ImportEntry], reservation: Reservation | None
) -> int:
    """Write entries and return how many changed: in one commit, or in more if the engine rejects so
    large a one."""

    async def work(tx: Transaction) -> int:
        written = 0
        for each in entries:
            before = await tx.entry(each.record, **each.fields)
            if before is None or (before.record, before.expires) != (each.value, each.expires):
                await tx.restore(each.record, each.value, expires=each.expires)
                written += 1
        return written

    try:
        return (await tenant.transact(work, reservation=reservation))[0]
    except LimitError:
        if len(entries) == 1:
            raise
    half = len(entries) // 2
    first = await _commit(tenant, entries[:half], reservation)
    return first + await _commit(tenant, entries[half:], reservation)


async def _growth(tenant: Tenant, entries: list[ImportEntry]) -> Size:
    """Return what an import adds to what is stored."""
    growth = Size()
    for number, each in enumerate(entries, 1):
        if number % _COMMIT_ENTRIES == 0:
            await asyncio.sleep(0)  # reads of an in-process engine never yield to other tasks
        row = await each.stored_row(tenant.store)
        stored = Size() if row is None else row_size(row.key, row.value)
        key = each.key if row is None else row.key
        growth += row_size(key, each.record.json.encode(each.value)) - stored
    return growth
