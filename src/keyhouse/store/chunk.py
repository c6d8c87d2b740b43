"""Work on many rows, some of them in one commit: as many as what they write fits into, on whatever engine."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from keyhouse.errors import LimitError
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

R = TypeVar("R")


async def in_chunk(store: Store, work: Callable[[int, Transaction], Awaitable[R]], most: int) -> R:
    """What `work(rows, tx)` answers, committed: with `most` rows, and half as many while one commit can't hold it."""
    rows = most
    while True:
        try:
            return await store.transact(partial(work, rows))
        except LimitError:
            if rows == 1:
                raise
            rows //= 2
