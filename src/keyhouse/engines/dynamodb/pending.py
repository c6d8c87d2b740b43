"""Writes that wait for a transaction of their space. A plan stages their outcomes."""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from keyhouse.engine import Batch
from keyhouse.engines.commit_queue import PendingCommit, PendingWrite

TRANSACTION_ITEMS_MAX: Final = 100
"""Items in one TransactWriteItems: DynamoDB's limit."""

OWN_ITEMS: Final = 3
"""Of those, the head, the entry of the log, and a new space's entry in the list of spaces."""


class DynamodbCommit(PendingCommit):
    """`alone`: decided on a consistent read of all its rows, in a separate transaction.

    So is a batch whose conditions do not fit into a transaction with its writes.
    """

    __slots__ = ("added", "checked", "touched")

    def __init__(self, space: str, batch: Batch) -> None:
        self.added = {add.key for add in batch.adds}
        self.checked = {check.key for check in batch.checks}
        self.touched = (
            self.added | self.checked | {put.key for put in batch.puts} | set(batch.deletes)
        )
        super().__init__(space, batch, alone=not _fits(self.touched))

    def reads(self, careful: bool) -> set[str]:
        """Return the keys whose rows a plan needs.

        Keys that are added to; with them, or after a failed condition, the checked keys as well.
        """
        return self.added | self.checked if careful or self.added else self.added

    @property
    def is_doubtful(self) -> bool:
        """True if the staged outcome may be wrong because the rows were not read at one moment.

        A failed check may be due to this very batch, sent twice; an invalid counter may come with a
        check that fails.
        """
        if self.error is not None:
            return bool(self.checked) or self.batch.id is not None
        return self.result is None and self.batch.id is not None


class DynamodbRemoval(PendingWrite[int]):
    """Removes rows that are still there and have expired. Its result is their number."""

    __slots__ = ("keys", "touched")

    def __init__(self, keys: list[str]) -> None:
        self.keys = keys
        self.touched = set(keys)
        super().__init__(alone=not _fits(self.touched))

    def reads(self, careful: bool) -> set[str]:
        return self.touched


class ExclusiveRead(PendingWrite[Any]):
    """Work during which this engine writes nothing in the space."""

    __slots__ = ("work",)

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        super().__init__(alone=True)
        self.work = work


TransactedWrite = DynamodbCommit | DynamodbRemoval
DynamodbWrite = TransactedWrite | ExclusiveRead


def _fits(touched: set[str]) -> bool:
    """True if a transaction has room for all rows, a batch id and the engine's own items."""
    return len(touched) + 1 + OWN_ITEMS <= TRANSACTION_ITEMS_MAX
