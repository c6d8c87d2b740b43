"""One customer's whole data, out and in, in the form of `wrangler`'s files.

An import looks at everything before it writes anything: what is wrong with a file is told, and nothing of it is written. It
then writes in commits that every engine takes. Cut off, it is run again: what is there already is left as it is.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from typing import Any, Final

import msgspec

from keyhouse.engine import Engine
from keyhouse.errors import LimitError, RecordError
from keyhouse.store import Transaction
from keyhouse.systems.streamkit.customers import Customer
from keyhouse.systems.streamkit.quota import NOTHING, QuotaSize, Room, size_of
from keyhouse.systems.streamkit.versions import PAIRS, KeyVersion
from keyhouse.systems.streamkit.wrangler import Item, Read, item

__all__ = [
    "Imported",
    "count_replaced",
    "encoded",
    "exported",
    "imported",
    "refuse_twice",
]

_COMMIT_ITEMS: Final = 25
"""Items of one commit: each may put a row and delete one, and DynamoDB commits 100 rows, checks included."""


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of the file: written, there already, and expired meanwhile."""

    written: int = 0
    unchanged: int = 0
    expired: int = 0


async def exported(engine: Engine, customer: str) -> AsyncIterator[Item]:
    """Every config and scene, each once, at the key where it is."""
    now = engine.clock.now()
    for pair in PAIRS.values():
        async for _, row in pair.rows(engine, customer):
            yield item(row.key, row.value, row.expires, now)


async def imported(customer: Customer, entries: list[Read], version: KeyVersion) -> Imported:
    """Put what was read over what is there, with the times it has. Each entry must be the customer's own."""
    now = customer.store.engine.clock.now()
    for number, each in enumerate(entries):
        if each.customer != customer.id:
            raise RecordError("The key is of another customer.", entry=number)
    refuse_twice(entries)
    live = [each for each in entries if each.expires is None or each.expires > now]

    async def write(room: Room) -> int:
        room.reserve(await _added(customer, live))
        written = 0
        for start in range(0, len(live), _COMMIT_ITEMS):
            written += await _commit(customer, live[start : start + _COMMIT_ITEMS], version)
        return written

    written = await customer.quota.within(write)
    return Imported(
        written=written, unchanged=len(live) - written, expired=len(entries) - len(live)
    )


def refuse_twice(entries: Collection[Read]) -> None:
    """RecordError when two entries are of the same config or scene: at either version of its key."""
    seen: set[tuple[str, str, str]] = set()
    for each in entries:
        named = each.customer, each.pair.category, each.identifier
        if named in seen:
            raise RecordError(
                "The file names something twice: leave one of them.",
                customer=named[0],
                type=named[1],
                id=named[2],
            )
        seen.add(named)


async def count_replaced(engine: Engine, entries: Iterable[Read]) -> int:
    """How many of them would be put over something else."""
    count = 0
    for each in entries:
        row = await each.pair.row(engine, each.customer, each.identifier)
        count += row is not None and (row.value, row.expires) != (encoded(each), each.expires)
    return count


async def _commit(customer: Customer, entries: list[Read], version: KeyVersion) -> int:
    """How many of them were written, in one commit, or in more where the engine takes no such large one."""

    async def work(tx: Transaction) -> int:
        written = 0
        for each in entries:
            before = await each.pair.entry(tx, each.identifier)
            if before is None or (before.record, before.expires) != (each.record, each.expires):
                await each.pair.restore(tx, each.record, before, version, each.expires)
                written += 1
        return written

    try:
        return await customer.store.transact(work)
    except LimitError:
        if len(entries) == 1:
            raise
    half = len(entries) // 2
    return await _commit(customer, entries[:half], version) + await _commit(
        customer, entries[half:], version
    )


async def _added(customer: Customer, entries: list[Read]) -> QuotaSize:
    """What the import adds to what is there."""
    added = NOTHING
    for number, each in enumerate(entries, 1):
        if number % _COMMIT_ITEMS == 0:
            await asyncio.sleep(
                0
            )  # an engine that has the row at hand waits for nothing, and others would
        row = await each.pair.row(customer.store.engine, customer.id, each.identifier)
        there = NOTHING if row is None else size_of(row.key, row.value)
        key = each.pair.v1.template.join((customer.id, each.identifier)) if row is None else row.key
        added = added + size_of(key, encoded(each)) - there
    return added


def encoded(entry: Read) -> bytes:
    """The JSON of an entry's record, as it will be stored."""
    record: Any = entry.pair.v1
    value: bytes = record.encode(entry.record)
    return value
