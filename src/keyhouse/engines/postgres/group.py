"""The commits of one call: the arguments of `sql.postgres.commit_function`, and its results.

A batch that touches a row which an earlier batch of the group writes goes into a later wave: within
a wave, the function applies everything at once. Which of several concurrent batches comes first is
not promised; that there is an order is.
"""

from typing import Any, Final

import msgspec

from keyhouse.engine import Batch
from keyhouse.engines.commit_queue import PendingCommit
from keyhouse.engines.postgres.error_map import NOT_STORABLE
from keyhouse.engines.sql.postgres import NOT_A_COUNTER, OUT_OF_BOUNDS, PASSES_BOUNDS
from keyhouse.engines.task_commit_queue import LaneGroup, LanePool
from keyhouse.errors import CounterError, DocumentError
from keyhouse.limits import BATCH_ID_KEPT_SECONDS, COUNTER_MAX

BATCHES_MAX: Final = 128
"""Batches in one call."""

ROWS_MAX: Final = 1_000
"""Rows read or written in one call; a larger batch goes alone."""

BYTES_MAX: Final = 1_024 * 1_024
"""Bytes of values in one call; a larger batch goes alone."""

WAVES_MAX: Final = 32
"""Batches in one call that touch the same row, one after the other."""

REVISION_MAX: Final = 2**63 - 1

_COUNTER_ERRORS: Final = {
    NOT_A_COUNTER: "The row is not a counter: its value is not a JSON integer.",
    OUT_OF_BOUNDS: "The counter is out of range.",
    PASSES_BOUNDS: "The counter would overflow.",
}

_encode = msgspec.json.Encoder().encode


class PostgresCommit(PendingCommit):
    __slots__ = ("keys", "values")

    def __init__(self, space: str, batch: Batch) -> None:
        puts, deletes, adds = batch.puts, batch.deletes, batch.adds
        self.values = [_text(put.key, put.value) for put in puts]
        self.keys = _keys(batch) if puts or deletes or adds else None
        super().__init__(
            space,
            batch,
            rows=len(batch.checks) + len(puts) + len(deletes) + len(adds),
            bytes=sum([len(value) for value in self.values]),
        )


class PostgresGroup(LaneGroup[PostgresCommit]):
    WRITES_MAX = BATCHES_MAX
    ROWS_MAX = ROWS_MAX
    BYTES_MAX = BYTES_MAX

    __slots__ = ("_spaces", "_waves", "_written")

    def __init__(self, pool: LanePool) -> None:
        super().__init__(pool)
        self._spaces: dict[str, int] = {}
        self._waves: list[int] = []
        self._written: dict[tuple[str, str], int] = {}

    def add(self, write: PostgresCommit) -> bool:
        keys = _writes(write.batch)
        wave = self._wave(write, keys)
        if wave > WAVES_MAX or not super().add(write):
            return False
        for key in keys:
            self._written[write.space, key] = wave
        self._spaces.setdefault(write.space, len(self._spaces) + 1)
        self._waves.append(wave)
        return True

    def _wave(self, write: PostgresCommit, keys: list[str]) -> int:
        """Return the first wave after those that write a row of this batch."""
        space, written = write.space, self._written
        wave = 1
        if written:
            for key in keys:
                wave = max(wave, written.get((space, key), 0) + 1)
            for check in write.batch.checks:
                wave = max(wave, written.get((space, check.key), 0) + 1)
        return wave

    def arguments(self, now: int, *, wait_for_locks: bool) -> tuple[object, ...]:
        at: list[int] = []
        ids: list[str | None] = []
        keys: list[str | None] = []
        c_batch: list[int] = []
        c_key: list[str] = []
        c_revision: list[int] = []
        p_batch: list[int] = []
        p_key: list[str] = []
        p_value: list[str] = []
        p_expires: list[int | None] = []
        d_batch: list[int] = []
        d_key: list[str] = []
        a_batch: list[int] = []
        a_key: list[str] = []
        a_by: list[str] = []
        for number, write in enumerate(self.writes, 1):
            batch = write.batch
            at.append(self._spaces[write.space])
            ids.append(batch.id)
            keys.append(write.keys)
            for check in batch.checks:
                c_batch.append(number)
                c_key.append(check.key)
                c_revision.append(_revision(check.revision))
            p_batch += [number] * len(batch.puts)
            p_key += [put.key for put in batch.puts]
            p_value += write.values
            p_expires += [put.expires for put in batch.puts]
            for key in batch.deletes:
                d_batch.append(number)
                d_key.append(key)
            for add in batch.adds:
                a_batch.append(number)
                a_key.append(add.key)
                a_by.append(_by(add.by))
        return (
            *(
                wait_for_locks,
                now,
                now - BATCH_ID_KEPT_SECONDS * 1_000,
                max(self._waves),
                list(self._spaces),
            ),
            *(
                at,
                [write.space for write in self.writes],
                self._waves,
                ids if any(ids) else None,
                keys,
            ),
            *(c_batch, c_key, c_revision),
            *(p_batch, p_key, p_value, _unless_empty(p_expires)),
            *(d_batch, d_key),
            *(a_batch, a_key, a_by),
        )

    def stage(self, record: Any) -> set[str]:
        """Stage the outcome of each batch, except those of locked spaces, which are returned."""
        names, errors = list(self._spaces), _errors(record)
        locked = {names[number - 1] for number in record["busy"] or ()}
        for number, (write, revision) in enumerate(
            zip(self.writes, record["answers"], strict=True), 1
        ):
            if number in errors:
                write.error = errors[number]
            else:
                write.result = revision
        return locked


def _errors(record: Any) -> dict[int, CounterError]:
    """Return the first error of each batch that has one."""
    errors: dict[int, CounterError] = {}
    if record["fault_batch"] is not None:
        for batch, key, kind in zip(
            record["fault_batch"], record["fault_key"], record["fault_kind"], strict=True
        ):
            errors.setdefault(
                batch, CounterError(_COUNTER_ERRORS[kind], key=key, limit=COUNTER_MAX)
            )
    return errors


def _writes(batch: Batch) -> list[str]:
    """Return the keys that the batch writes, with its batch id as one of them."""
    keys = [put.key for put in batch.puts]
    keys += batch.deletes
    keys += [add.key for add in batch.adds]
    if batch.id is not None:
        keys.append(f"\0{batch.id}")  # no key contains U+0000
    return keys


def _text(key: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeError as error:
        raise DocumentError(NOT_STORABLE, key=key) from error
    if "\0" in text:
        raise DocumentError(NOT_STORABLE, key=key)
    return text


def _keys(batch: Batch) -> str:
    """Return the entry of the log of changes: `[["put", …], ["deleted", …]]`."""
    written = [put.key for put in batch.puts]
    written += [add.key for add in batch.adds]
    try:
        return _encode((written, batch.deletes)).decode()
    except UnicodeError as error:
        raise DocumentError(NOT_STORABLE, keys=written) from error


def _revision(revision: int | None) -> int:
    """Return 0 for absence, and -1 for a revision that no row can have."""
    if revision is None:
        return 0
    return revision if 0 < revision <= REVISION_MAX else -1


def _unless_empty(expiries: list[int | None]) -> list[int | None] | None:
    """Return None if nothing expires: the driver inspects each element of an array."""
    return expiries if expiries.count(None) < len(expiries) else None


def _by(by: int) -> str:
    """Clamp to a value that still passes the bounds from every counter within them."""
    return str(min(max(by, -2 * COUNTER_MAX - 1), 2 * COUNTER_MAX + 1))
