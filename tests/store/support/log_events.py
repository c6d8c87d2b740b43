"""Events of the listening log, and their totals."""

from typing import Any

import msgspec

from keyhouse.schema import Log
from keyhouse.store import Store, prune
from tests.store.support.library_schema import (
    HEARD,
    LATER,
    LATER_SECONDS_OF,
    SECONDS_OF,
    Heard,
)


def heard(seconds: int = 1, user: str = "ann", book: str = "b") -> Heard:
    return Heard(user=user, book=book, seconds=seconds)


async def imported(store: Store, event: Heard) -> None:
    """Write an event past the log LATER, as an import does: it is not folded."""
    event = msgspec.structs.replace(event, at=store.ids.new())
    await store.transact(lambda tx: tx.restore(LATER, event))


async def total(store: Store, user: str = "ann") -> int:
    return await store.get(SECONDS_OF, user=user) or 0


async def later_total(store: Store, user: str = "ann") -> int:
    return await store.get(LATER_SECONDS_OF, user=user) or 0


async def events(store: Store, log: Log[Any] = HEARD, **fields: Any) -> list[int]:
    return [entry.record.seconds async for entry in store.scan(log, **fields)]


async def pruned(store: Store, log: Log[Any] = HEARD, **options: Any) -> list[int]:
    return [gone async for gone in prune(store, log, **options)]
