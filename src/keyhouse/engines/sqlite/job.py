"""One caller's work for one write transaction, and the caller's wait for its answer."""

import asyncio
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

from keyhouse.engines.sqlite.transaction import POISON, Transaction
from keyhouse.errors import KeyhouseError

GROUP_JOBS_MAX: Final = 128
"""Jobs in one transaction."""

GROUP_ROWS_MAX: Final = 512
"""Rows read or written in one transaction that the event loop prepares: about 2 ms."""

GROUP_BYTES_MAX: Final = 1_024 * 1_024
"""Bytes of values in one transaction that the event loop prepares."""

Answer = TypeVar("Answer")


class Job(Generic[Answer]):
    """`alone`: too large for the event loop, so it runs on the writer's thread, in a transaction of its own."""

    __slots__ = ("_answer", "_refusal", "_work", "alone", "bytes", "future", "poisoned", "rows")

    def __init__(
        self, work: Callable[[Transaction], Answer], *, rows: int = 0, bytes: int = 0, alone: bool = False
    ) -> None:
        self._work = work
        self._refusal: Exception | None = None
        self.rows = rows
        self.bytes = bytes
        self.alone = alone or rows > GROUP_ROWS_MAX or bytes > GROUP_BYTES_MAX
        self.future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.poisoned = False

    def run(self, transaction: Transaction) -> None:
        """Keep the answer, or the refusal, until the transaction is on disk. The transaction's own errors are raised.

        `poisoned` when it broke off in the midst of its writes: then the transaction must be done again without it.
        """
        self._refusal = None
        try:
            self._answer = self._work(transaction)
        except KeyhouseError as refusal:
            self._refusal = refusal
        except POISON as fault:
            self._refusal = fault
            self.poisoned = True

    def settle(self, failure: KeyhouseError | None) -> None:
        """Tell the caller, unless it has gone: its own refusal, or the transaction's failure, or the answer."""
        if self.future.done():
            return
        if self.poisoned and self._refusal is not None:
            self.future.set_exception(self._refusal)
        elif failure is not None:
            self.future.set_exception(_copy(failure))
        elif self._refusal is not None:
            self.future.set_exception(self._refusal)
        else:
            self.future.set_result(self._answer)


Group = list[Job[Any]]


def _copy(failure: KeyhouseError) -> KeyhouseError:
    """One for each caller: each adds its own traceback."""
    copy = type(failure)(failure.sentence, **failure.fields)
    copy.__cause__ = failure.__cause__
    return copy
