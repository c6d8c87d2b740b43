"""As many rows as fit: work that is tried with fewer of them until one commit holds it."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TypeVar

from keyhouse.errors import KeyhouseError, LimitError
from keyhouse.store.jobs.store_like import StoreLike
from keyhouse.store.transaction import Transaction

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
