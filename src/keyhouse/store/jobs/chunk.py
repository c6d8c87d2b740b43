"""As many rows as fit into one commit: groups of them, and work that is tried with fewer of them
until it fits."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

from keyhouse.errors import KeyhouseError, LimitError
from keyhouse.store.jobs.store_like import StoreLike
from keyhouse.store.reads.long_read import PAGE_BYTES
from keyhouse.store.writes.transaction import Transaction

R = TypeVar("R")
T = TypeVar("T")


class Chunk:
    """The number of rows that a job changes in its next commit: at most `rows_max`.

    Half of it, as long as that is too much for one commit; a quarter more after one that held it.
    """

    def __init__(self, rows_max: int) -> None:
        self._rows = self._rows_max = rows_max

    async def transact(
        self, store: StoreLike, work: Callable[[int, Transaction], Awaitable[R]]
    ) -> R:
        """Run `work(rows, tx)` in a transaction. Raises LimitError if a single row is too much."""
        while True:
            try:
                result = await store.transact(partial(work, self._rows))
            except LimitError:
                if self._rows == 1:
                    raise
                self._rows //= 2
            else:
                self._rows = min(self._rows_max, self._rows + self._rows // 4 + 1)
                return result


async def in_halves(
    items: Sequence[T],
    work: Callable[[Sequence[T]], Awaitable[int]],
    *errors: type[KeyhouseError],
) -> int:
    """Call `work` with all items, and where it raises one of these errors with each half of them;
    return the sum of its results. Raises what it raises for a single item."""
    groups, total = [items] if items else [], 0
    while groups:
        group = groups.pop()
        try:
            total += await work(group)
        except errors:
            if len(group) == 1:
                raise
            half = len(group) // 2
            groups += [group[half:], group[:half]]
    return total


async def grouped(
    items: AsyncGenerator[T, None], count: int, size: Callable[[T], int] = lambda item: 0
) -> AsyncGenerator[list[T], None]:
    """Yield the items in lists of `count`; of fewer, if their size in bytes is that of a page."""
    group: list[T] = []
    bytes_read = 0
    async with aclosing(items):
        async for item in items:
            group.append(item)
            bytes_read += size(item)
            if len(group) == count or bytes_read >= PAGE_BYTES:
                yield group
                group, bytes_read = [], 0
    if group:
        yield group
