"""Export and import in the format of `wrangler`: one customer's data through the service, or many
customers' by an operator.

An import checks the whole file before it writes anything. It then writes in commits that every
engine accepts. If it is interrupted, run it again: entries that are already stored are left as they
are.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterable
from contextlib import aclosing
from typing import Any, Final

import msgspec

from keyhouse.clock import SystemClock
from keyhouse.engine import Engine
from keyhouse.errors import DocumentError, LimitError, RecordError
from keyhouse.service.usage import Quota, Size, row_size
from keyhouse.store import Store, Transaction
from keyhouse.systems.streamkit.migration import customer_ids
from keyhouse.systems.streamkit.schema import RECORDS, SCHEMAS
from keyhouse.systems.streamkit.settings import KeyVersion
from keyhouse.systems.streamkit.tenants import Customer
from keyhouse.systems.streamkit.wrangler import File, Item, ParsedItem, json_part, make_item, parse

_COMMIT_ITEMS: Final = 25
"""Items of one commit: each may put a row and delete one, and DynamoDB commits 100 rows, checks
included."""

_decode = msgspec.json.Decoder(File).decode


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


async def export_customer(store: Store) -> AsyncGenerator[Item, None]:
    """Iterate over every config and scene once, at the key where it is stored."""
    now = store.engine.clock.now()
    for record in RECORDS.values():
        async with aclosing(store.record_rows(record)) as rows:
            async for _, row in rows:
                yield make_item(row.key, row.value, row.expires, now)


async def import_customer(customer: Customer, entries: list[ParsedItem]) -> ImportCounts:
    """Write the entries over stored ones, with their own times. Each must be of this customer."""
    now = customer.store.engine.clock.now()
    for number, each in enumerate(entries):
        if each.customer != customer.name:
            raise RecordError("The key is of another customer.", entry=number)
    reject_duplicates(entries)
    live = [each for each in entries if each.is_live(now)]
    usage = customer.usage
    reservation = None if usage is None else await usage.reserve(await _growth(customer, live))
    written = 0
    try:
        for start in range(0, len(live), _COMMIT_ITEMS):
            written += await _commit(customer, live[start : start + _COMMIT_ITEMS], reservation)
    finally:
        if usage is not None and reservation is not None:
            usage.release(reservation)
    return ImportCounts(
        written=written, unchanged=len(live) - written, expired=len(entries) - len(live)
    )


async def export_items(engine: Engine, customers: Collection[str] = ()) -> AsyncIterator[Item]:
    """Iterate over every config and scene of these customers, or of all."""
    names = sorted(customers) if customers else [name async for name in customer_ids(engine)]
    for name in names:
        async with aclosing(export_customer(Store(SCHEMAS[0], engine, name))) as items:
            async for item in items:
                yield item


def read_items(text: bytes, *, now: int | None = None) -> list[ParsedItem]:
    """Parse a file. Output of `wrangler` around the JSON is ignored. No time in it may be later
    than `now`."""
    try:
        file = _decode(json_part(text))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            "This is not a wrangler file: a list of entries, or values by key.", reason=str(error)
        ) from None
    return list(parse(file, SystemClock().now() if now is None else now))


async def import_items(
    engine: Engine, entries: Collection[ParsedItem], *, keys: KeyVersion = "v1"
) -> ImportCounts:
    """Write the entries over stored ones, each into its customer's space, without a quota."""
    reject_duplicates(entries)
    by_customer: dict[str, list[ParsedItem]] = {}
    for each in entries:
        by_customer.setdefault(each.customer, []).append(each)
    total = ImportCounts()
    for name, items in by_customer.items():
        total += await import_customer(Customer(name, engine, Quota(), keys), items)
    return total


async def count_replaced(engine: Engine, entries: Iterable[ParsedItem]) -> int:
    """Return how many of the entries would replace a different stored one."""
    count, now = 0, engine.clock.now()
    for each in entries:
        if not each.is_live(now):
            continue
        row = await _stored_row(Store(SCHEMAS[0], engine, each.customer), each)
        stored = each.record.encode(each.value), each.expires
        count += row is not None and (row.value, row.expires) != stored
    return count


def reject_duplicates(entries: Collection[ParsedItem]) -> None:
    """Raise RecordError if two entries are of the same config or scene, at either version of its
    key."""
    seen: set[tuple[str, str, str]] = set()
    for each in entries:
        customer, category, id = name = each.customer, each.record.name, each.identifier
        if name in seen:
            raise RecordError(
                "The file has two entries for one record: remove one.",
                customer=customer,
                type=category,
                id=id,
            )
        seen.add(name)


async def _commit(customer: Customer, entries: list[ParsedItem], reservation: Any) -> int:
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
        return (await customer.transact(work, reservation=reservation))[0]
    except LimitError:
        if len(entries) == 1:
            raise
    half = len(entries) // 2
    first = await _commit(customer, entries[:half], reservation)
    return first + await _commit(customer, entries[half:], reservation)


async def _growth(customer: Customer, entries: list[ParsedItem]) -> Size:
    """Return what an import adds to what is stored."""
    growth = Size()
    for number, each in enumerate(entries, 1):
        if number % _COMMIT_ITEMS == 0:
            await asyncio.sleep(0)  # reads of an in-process engine never yield to other tasks
        row = await _stored_row(customer.store, each)
        stored = Size() if row is None else row_size(row.key, row.value)
        key = each.key if row is None else row.key
        growth += row_size(key, each.record.encode(each.value)) - stored
    return growth


async def _stored_row(store: Store, entry: ParsedItem) -> Any:
    return await store.record_row(entry.record, **entry.fields)
