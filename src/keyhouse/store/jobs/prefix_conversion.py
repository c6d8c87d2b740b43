"""Conversion of a space between two prefixes of one schema (`Schema.under`), or to or from none.

A prefix stands in front of every key and in no value, so each row is moved as it is: one commit
puts some rows at their new keys and deletes the old ones, with both checked. A run that was killed
is continued by the next one, which finds what is left; a finished one finds nothing. Programs that
use the space must be stopped first: each of them knows one of the two prefixes.

One runner works at a time: it holds a lease, a row at `CONVERSION_KEY` that every commit renews and
checks, and that the last one deletes. It belongs to neither prefix, so it is not moved itself.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from keyhouse.engine import Batch, Check, Engine, Put, Row, Span, check_key, check_limits
from keyhouse.errors import ContentionError, KeyhouseError, LeaseError, LimitError, UsageError
from keyhouse.schema import Schema

CONVERSION_KEY: Final = "keyhouse-convert"
"""The key of the lease."""

_COMMIT_ROWS = 100
_ATTEMPTS_MAX = 20
_LEASE_MS = 60_000


class PrefixConversion(msgspec.Struct):
    """`moved` rows have new keys. `conflicts` are keys that were left, because their new key has
    another row."""

    moved: int = 0
    conflicts: list[str] = []


class ConversionLease(msgspec.Struct, frozen=True):
    """The value of the lease, until clock milliseconds, and the text before all new keys."""

    lease_until: int
    to: str


async def convert_prefix(
    engine: Engine,
    space: str,
    source: Schema,
    target: Schema,
    *,
    on_progress: Callable[[int], None] | None = None,
) -> PrefixConversion:
    """Move all rows of a space from the keys of one schema to those of another one.

    The two are one schema with and without a prefix, or with two. Rows of other keys are left.
    Repeat a call that was interrupted: it continues. Raises LeaseError while another runner works.
    """
    if target.name != source.name or target.prefix == source.prefix:
        raise UsageError(
            "A conversion is between two prefixes of one schema.",
            source=f"{source.name} {source.prefix!r}",
            target=f"{target.name} {target.prefix!r}",
        )
    lease = _Lease(engine, space, target.text_before(space))
    if source.find(CONVERSION_KEY) is None and target.find(CONVERSION_KEY) is None:
        await lease.claim()
    try:
        result = await _convert(lease, source, target, on_progress)
    except (Exception, asyncio.CancelledError):
        with suppress(KeyhouseError):
            await lease.release()
        raise
    await lease.release()
    return result


async def _convert(
    lease: "_Lease",
    source: Schema,
    target: Schema,
    on_progress: Callable[[int], None] | None,
) -> PrefixConversion:
    engine, space = lease.engine, lease.space
    old, new = source.text_before(space), target.text_before(space)
    result = PrefixConversion()
    span: Span | None = Span.prefix(old)
    while span is not None:
        page = await engine.scan(space, span, limit=_COMMIT_ROWS)
        rows = [
            row
            for row in page.rows
            if source.find(row.key) is not None
            and not (len(new) > len(old) and row.key.startswith(new))
        ]
        await _move(lease, (len(old), new), rows, result)
        if on_progress is not None:
            on_progress(result.moved)
        span = span.after(page.rows[-1].key) if page.more else None
    return result


class _Lease:
    """The right to convert a space. `revision` is that of its row; None without one."""

    def __init__(self, engine: Engine, space: str, to: str) -> None:
        self.engine = engine
        self.space = space
        self.revision: int | None = None
        self._to = to

    async def claim(self) -> None:
        """Write the lease. Raises LeaseError if another runner holds it."""
        for _ in range(_ATTEMPTS_MAX):
            if not (await self.engine.scan(self.space, Span(), limit=1, keys_only=True)).rows:
                return  # nothing to move, and no space to create
            [row] = await self.engine.read(self.space, [CONVERSION_KEY])
            left = 0 if row is None else _lease_of(row) - self.engine.clock.now()
            if left > 0:
                raise LeaseError(
                    "Another runner converts this space: wait for it, or until its lease expires.",
                    space=self.space,
                    seconds=(left + 999) // 1_000,
                )
            check = Check(CONVERSION_KEY, None if row is None else row.revision)
            batch = Batch(checks=(check,), puts=(self._put(),))
            self.revision = await self.engine.commit(self.space, batch)
            if self.revision is not None:
                return
        raise ContentionError("Other runners convert this space.", space=self.space)

    async def commit(self, batch: Batch) -> bool:
        """Commit a batch, with the lease renewed. Returns False if a check of the batch failed;
        raises LeaseError if another runner has the lease."""
        if self.revision is None:
            return await self.engine.commit(self.space, batch) is not None
        checks = (*batch.checks, Check(CONVERSION_KEY, self.revision))
        renewed = Batch(checks, (*batch.puts, self._put()), batch.deletes)
        revision = await self.engine.commit(self.space, renewed)
        if revision is not None:
            self.revision = revision
            return True
        [row] = await self.engine.read(self.space, [CONVERSION_KEY])
        if row is None or row.revision != self.revision:
            raise LeaseError("Another runner has taken this conversion over.", space=self.space)
        return False

    async def release(self) -> None:
        """Delete the lease, so that the next run need not wait for its expiry."""
        if self.revision is not None:
            check = Check(CONVERSION_KEY, self.revision)
            await self.engine.commit(self.space, Batch((check,), deletes=(CONVERSION_KEY,)))

    @property
    def rows(self) -> int:
        """The number of rows that the lease adds to a commit."""
        return self.revision is not None

    def _put(self) -> Put:
        until = self.engine.clock.now() + _LEASE_MS
        return Put(CONVERSION_KEY, msgspec.json.encode(ConversionLease(until, self._to)))


def _lease_of(row: Row) -> int:
    """Return when a lease expires: at once, if another program has written the row."""
    try:
        return msgspec.json.decode(row.value, type=ConversionLease).lease_until
    except msgspec.DecodeError:
        return 0


async def _move(
    lease: _Lease, change: tuple[int, str], rows: list[Row], result: PrefixConversion
) -> None:
    """Move rows in commits that the engine can hold. The rows of a commit that loses a race are
    read again."""
    engine, space = lease.engine, lease.space
    most = max(1, min(_COMMIT_ROWS, (engine.capabilities.commit_rows_max - lease.rows) // 2))
    groups = [rows[at : at + most] for at in range(0, len(rows), most)]
    attempts = 0
    while groups:
        group = groups.pop()
        try:
            if await _commit(lease, change, group, result):
                attempts = 0
                continue
        except LimitError:
            if len(group) == 1:
                raise
            half = len(group) // 2
            groups += [group[half:], group[:half]]
            continue
        attempts += 1
        if attempts == _ATTEMPTS_MAX:
            raise ContentionError(
                "The space is still being written: stop its writers first.", space=space
            )
        current = await engine.read(space, [row.key for row in group])
        groups.append([row for row in current if row is not None])


async def _commit(
    lease: _Lease, change: tuple[int, str], rows: list[Row], result: PrefixConversion
) -> bool:
    engine, space = lease.engine, lease.space
    size, new = change
    keys = [new + row.key[size:] for row in rows]
    for key in keys:
        check_key(key)
    there = await engine.read(space, keys) if keys else []
    puts, deletes, checks, conflicts = [], [], [], []
    for row, key, found in zip(rows, keys, there, strict=True):
        if found is not None and (found.value, found.expires) != (row.value, row.expires):
            conflicts.append(row.key)
            continue
        checks += [
            Check(row.key, row.revision),
            Check(key, None if found is None else found.revision),
        ]
        puts.append(Put(key, row.value, row.expires))
        deletes.append(row.key)
    if puts:
        batch = Batch(tuple(checks), tuple(puts), tuple(deletes))
        check_limits(batch, engine.capabilities)
        if not await lease.commit(batch):
            return False
    result.moved += len(puts)
    result.conflicts += conflicts
    return True
