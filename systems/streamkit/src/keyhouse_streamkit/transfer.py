"""Export and import in the format of `wrangler`: one customer's data, or many customers' by an
operator.

An import checks the whole file before it writes anything: see `keyhouse.service.bulk_import`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Collection
from contextlib import aclosing

import msgspec

from keyhouse.clock import SystemClock
from keyhouse.engine import Engine
from keyhouse.errors import DocumentError
from keyhouse.service import bulk_import
from keyhouse.service.bulk_import import (
    ImportCounts,
    ImportEntry,
    import_entries,
    reject_duplicates,
)
from keyhouse.service.usage import Quota
from keyhouse.store import Store
from keyhouse_streamkit.migration import customer_ids
from keyhouse_streamkit.schema import RECORDS, SCHEMAS
from keyhouse_streamkit.settings import KeyVersion
from keyhouse_streamkit.tenants import Customer
from keyhouse_streamkit.wrangler import File, Item, json_part, make_item, parse

_decode = msgspec.json.Decoder(File).decode


async def export_customer(store: Store) -> AsyncGenerator[Item, None]:
    """Iterate over every config and scene once, at the key where it is stored."""
    now = store.engine.clock.now()
    for record in RECORDS.values():
        async with aclosing(store.record_rows(record)) as rows:
            async for _, row in rows:
                yield make_item(row.key, row.value, row.expires, now)


async def export_items(engine: Engine, customers: Collection[str] = ()) -> AsyncIterator[Item]:
    """Iterate over every config and scene of these customers, or of all."""
    names = sorted(customers) if customers else [name async for name in customer_ids(engine)]
    for name in names:
        async with aclosing(export_customer(Store(SCHEMAS[0], engine, name))) as items:
            async for item in items:
                yield item


def read_items(text: bytes, *, now: int | None = None) -> list[ImportEntry]:
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
    engine: Engine, entries: Collection[ImportEntry], *, keys: KeyVersion = "v1"
) -> ImportCounts:
    """Write the entries over stored ones, each into its customer's space, without a quota."""
    reject_duplicates(entries, "customer")
    total = ImportCounts()
    for name, own in _by_customer(entries).items():
        total += await import_entries(Customer(name, engine, Quota(), keys), own)
    return total


async def count_replaced(engine: Engine, entries: Collection[ImportEntry]) -> int:
    """Return how many of the entries would replace a different stored one."""
    count = 0
    for name, own in _by_customer(entries).items():
        count += await bulk_import.count_replaced(Store(SCHEMAS[0], engine, name), own)
    return count


def _by_customer(entries: Collection[ImportEntry]) -> dict[str, list[ImportEntry]]:
    by_customer: dict[str, list[ImportEntry]] = {}
    for each in entries:
        by_customer.setdefault(each.tenant, []).append(each)
    return by_customer
