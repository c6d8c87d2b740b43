"""The evaluation of a batch, for the engines that decide it in Python.

Memory, RocksDB, JetStream and DynamoDB use it. SQLite and PostgreSQL decide most of it in SQL.

    step                                            outcome
    ---------------------------------------------   ---------------------------------------------
    1. the batch id was applied before              the revision of that time
    2. a check does not hold                        None
    3. an add to no counter, or an overflow         CounterError
    4. nothing to write                             the newest revision; the id is not stored
    5. otherwise                                    the puts, with the sums, and the deletes

Nothing is changed here, so a batch that is rejected has nothing to undo.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from keyhouse.engine import Batch, Check, Put, sum_of
from keyhouse.limits import BATCH_ID_KEPT_SECONDS


class Writes(msgspec.Struct, frozen=True, gc=False):
    """The rows that a batch writes."""

    puts: Sequence[Put]
    deletes: Sequence[str]


class BatchState(Protocol):
    """The state that a batch finds. Expired rows are absent."""

    @property
    def revision(self) -> int:
        """The newest revision."""
        ...

    def applied(self, space: str, batch_id: str) -> int | None:
        """Return the revision of a batch id that was applied and has not expired."""
        ...

    def holds(self, space: str, check: Check) -> bool: ...

    def counter(self, space: str, key: str) -> tuple[bytes | None, int | None]:
        """Return a row's value and expiry; None for each of an absent one."""
        ...


def evaluate(space: str, batch: Batch, state: BatchState) -> Writes | int | None:
    """Return the rows to write, or the outcome of a batch that writes nothing."""
    if batch.id is not None and (revision := state.applied(space, batch.id)) is not None:
        return revision
    for check in batch.checks:
        if not state.holds(space, check):
            return None
    puts: Sequence[Put] = batch.puts
    if batch.adds:
        puts = [*puts]
        for add in batch.adds:
            value, expires = state.counter(space, add.key)
            puts.append(Put(add.key, sum_of(add.key, value, add.by), expires))
    return Writes(puts, batch.deletes) if puts or batch.deletes else state.revision


def ids_expired_at(now: int) -> int:
    """Return the time up to which applied batch ids have expired."""
    return now - BATCH_ID_KEPT_SECONDS * 1_000
