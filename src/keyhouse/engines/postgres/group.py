"""The batches of one call, as the arguments that `sql.postgres.commit_function` takes, and what becomes of them.

A batch that touches what an earlier one of the group writes is put into a wave behind it: within a wave, all is done at
once. Which of several concurrent batches comes first is nobody's promise; that there is an order is.
"""

import asyncio
from typing import Any, Final

import msgspec

from keyhouse.engine import Batch
from keyhouse.engines.postgres.error_map import NOT_STORABLE
from keyhouse.engines.sql.postgres import NOT_A_COUNTER, OUT_OF_BOUNDS, PASSES_BOUNDS
from keyhouse.errors import CounterError, DocumentError, KeyhouseError
from keyhouse.limits import BATCH_ID_KEPT_SECONDS, COUNTER_MAX

JOBS_MAX: Final = 128
"""Batches in one call."""

ROWS_MAX: Final = 1_000
"""Rows read or written in one call; a larger batch goes alone."""

BYTES_MAX: Final = 1_024 * 1_024
"""Bytes of values in one call; a larger batch goes alone."""

WAVES_MAX: Final = 32
"""Batches one behind the other in one call, when all want the same row."""

REVISION_MAX: Final = 2**63 - 1

_REFUSALS: Final = {
    NOT_A_COUNTER: "The row is not a counter: its value is not a JSON integer.",
    OUT_OF_BOUNDS: "The counter is out of range.",
    PASSES_BOUNDS: "The counter would overflow.",
}

_encode = msgspec.json.Encoder().encode


class Job:
    """One caller's batch, and its wait for the answer."""

    __slots__ = ("batch", "bytes", "future", "keys", "rows", "space", "values")

    def __init__(self, space: str, batch: Batch) -> None:
        puts, deletes, adds = batch.puts, batch.deletes, batch.adds
        self.space = space
        self.batch = batch
        self.values = [_text(put.key, put.value) for put in puts]
        self.rows = len(batch.checks) + len(puts) + len(deletes) + len(adds)
        self.bytes = sum([len(value) for value in self.values])
        self.keys = _keys(batch) if puts or deletes or adds else None
        self.future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()

    def answer(self, revision: int | None) -> None:
        if not self.future.done():
            self.future.set_result(revision)

    def fail(self, error: KeyhouseError) -> None:
        """One error for each caller: each adds its own traceback."""
        if not self.future.done():
            self.future.set_exception(error.copy())


class Group:
    __slots__ = ("_bytes", "_rows", "_waves", "_written", "jobs", "spaces")

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.spaces: dict[str, int] = {}
        self._waves: list[int] = []
        self._written: dict[tuple[str, str], int] = {}
        self._rows = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self.jobs) >= JOBS_MAX

    def add(self, job: Job) -> bool:
        """Whether there was room for it."""
        if self.jobs and (self._rows + job.rows > ROWS_MAX or self._bytes + job.bytes > BYTES_MAX):
            return False
        wave = self._wave(job)
        if wave > WAVES_MAX:
            return False
        self.jobs.append(job)
        self.spaces.setdefault(job.space, len(self.spaces) + 1)
        self._waves.append(wave)
        self._rows += job.rows
        self._bytes += job.bytes
        return True

    def _wave(self, job: Job) -> int:
        space, batch, written = job.space, job.batch, self._written
        writes = [put.key for put in batch.puts]
        writes += batch.deletes
        writes += [add.key for add in batch.adds]
        if batch.id is not None:
            writes.append(f"\0{batch.id}")  # no key holds U+0000
        wave = 1
        if written:
            for key in writes:
                wave = max(wave, written.get((space, key), 0) + 1)
            for check in batch.checks:
                wave = max(wave, written.get((space, check.key), 0) + 1)
        if wave <= WAVES_MAX:
            for key in writes:
                written[space, key] = wave
        return wave

    def arguments(self, now: int, *, patient: bool) -> tuple[object, ...]:
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
        for number, job in enumerate(self.jobs, 1):
            batch = job.batch
            at.append(self.spaces[job.space])
            ids.append(batch.id)
            keys.append(job.keys)
            for check in batch.checks:
                c_batch.append(number)
                c_key.append(check.key)
                c_revision.append(_revision(check.revision))
            p_batch += [number] * len(batch.puts)
            p_key += [put.key for put in batch.puts]
            p_value += job.values
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
                patient,
                now,
                now - BATCH_ID_KEPT_SECONDS * 1_000,
                max(self._waves),
                list(self.spaces),
            ),
            *(at, [job.space for job in self.jobs], self._waves, ids if any(ids) else None, keys),
            *(c_batch, c_key, c_revision),
            *(p_batch, p_key, p_value, _unless_empty(p_expires)),
            *(d_batch, d_key),
            *(a_batch, a_key, a_by),
        )

    def settle(self, record: Any) -> dict[str, list[Job]]:
        """Tell the jobs what the function answered; those of a space that was locked, by space, remain."""
        names, faults = list(self.spaces), _faults(record)
        remaining: dict[str, list[Job]] = {names[number - 1]: [] for number in record["busy"] or ()}
        for number, (job, answer) in enumerate(zip(self.jobs, record["answers"], strict=True), 1):
            if job.space in remaining:
                remaining[job.space].append(job)
            elif number in faults:
                job.fail(faults[number])
            else:
                job.answer(answer)
        return remaining

    def fail(self, error: KeyhouseError) -> None:
        for job in self.jobs:
            job.fail(error)


def _faults(record: Any) -> dict[int, CounterError]:
    """The first refusal of each batch that has one."""
    faults: dict[int, CounterError] = {}
    if record["fault_batch"] is not None:
        for batch, key, kind in zip(
            record["fault_batch"], record["fault_key"], record["fault_kind"], strict=True
        ):
            faults.setdefault(batch, CounterError(_REFUSALS[kind], key=key, limit=COUNTER_MAX))
    return faults


def _text(key: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeError as error:
        raise DocumentError(NOT_STORABLE, key=key) from error
    if "\0" in text:
        raise DocumentError(NOT_STORABLE, key=key)
    return text


def _keys(batch: Batch) -> str:
    """What the log says of it: `[["put", …], ["deleted", …]]`."""
    written = [put.key for put in batch.puts]
    written += [add.key for add in batch.adds]
    try:
        return _encode((written, batch.deletes)).decode()
    except UnicodeError as error:
        raise DocumentError(NOT_STORABLE, keys=written) from error


def _revision(revision: int | None) -> int:
    """0 is absence, and what no row can be at is -1."""
    if revision is None:
        return 0
    return revision if 0 < revision <= REVISION_MAX else -1


def _unless_empty(expiries: list[int | None]) -> list[int | None] | None:
    """Nothing at all where nothing expires: the driver looks at each element of an array, and the function does without."""
    return expiries if expiries.count(None) < len(expiries) else None


def _by(by: int) -> str:
    """What passes the bounds from anywhere within them passes them by just as much."""
    return str(min(max(by, -2 * COUNTER_MAX - 1), 2 * COUNTER_MAX + 1))
