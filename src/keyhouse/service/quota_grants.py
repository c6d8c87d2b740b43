"""Grants: how the processes that write one store keep a tenant's quota together.

Theory of operation. A row says how much of the quota is used or granted (`store.service_rows`). A
process that grows what a tenant stores must have a grant for it in the row, and spends it without
looking at the row again. This always holds, for all processes together:

    stored  ≤  counted + grown - freed + grants  ≤  quota

- `counted` is the result of a scan by any process. `grown` and `freed` were reported since then.
- An *extension* reports what the process has spent and freed, and replaces its grant. The new one
  is as large as needed, and twice what was spent of the last one, up to a twentieth of the quota
  and a quarter of what is free; near the quota (nine tenths) it is only what is needed. So a
  process that writes a lot writes the row seldom, and processes that use up a quota together leave
  nothing of it.
- A *count* replaces `counted` when it is old, and before a write is rejected. It is exact for the
  writes of this process (`usage`), and includes an unknown part of those of others. So it takes
  nothing from their grants, and from `grown` only what had been reported when it started. A process
  whose grant is older than the count then reports what it has spent, which may count twice until
  the next count, but not what it has freed; nor does any process what was freed by a commit that
  the count may have seen (`count_revision`).
- A grant *expires*, also that of a process that has died: then all of it counts as grown, until the
  next count. Its process stops using it some seconds earlier, by which clocks may differ.

So the quota is not exceeded. A write may be rejected although there is room: as much as a process
was granted before the quota was near and has not used, for a minute at most.

| event | row | process |
|---|---|---|
| growth within the grant | | `spent` grows |
| growth beyond it | extension; before it a count, if needed | new grant |
| deletion | | `freed` grows, until the next extension |
| outcome of an extension is unknown | either | no growth before another extension |
| death | the grant stays until it expires | |
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from keyhouse.engine import Engine
from keyhouse.errors import QuotaError
from keyhouse.service.limits import (
    GRANT_MARGIN_SECONDS,
    GRANT_SECONDS,
    USAGE_AGE_SECONDS_MAX,
    USAGE_RECOUNT_SECONDS_MIN,
)
from keyhouse.service.quota import COUNT_PAUSE_FACTOR, EMPTY, Quota, Size
from keyhouse.store import update_service_row

__all__ = ["QuotaGrants"]

R = TypeVar("R")

_ROW_SECONDS: Final = 2 * USAGE_AGE_SECONDS_MAX
_QUOTA_SHARE: Final = 20
_FREE_SHARE: Final = 4


class Count(Protocol):
    """The result of a scan, with all later writes of this process."""

    size: Size
    seconds: float

    @property
    def revision(self) -> int:
        """The newest revision that it has seen."""
        ...


class _Grant(msgspec.Struct):
    size: Size
    until: int


class _Row(msgspec.Struct):
    counted: Size
    counted_at: int
    count_id: str
    count_revision: int
    count_seconds: float
    grown: Size = EMPTY
    freed: Size = EMPTY
    grants: dict[str, _Grant] = {}

    @property
    def used(self) -> Size:
        granted = sum((grant.size for grant in self.grants.values()), EMPTY)
        return self.counted + self.grown - self.freed + granted

    def expire_grants(self, now: int) -> None:
        for process, grant in [*self.grants.items()]:
            if grant.until <= now:
                self.grown += self.grants.pop(process).size

    def is_older_than(self, seconds: float, now: int) -> bool:
        least = max(seconds, self.count_seconds * COUNT_PAUSE_FACTOR)
        return not 0 <= now - self.counted_at < least * 1_000


class _Extension(NamedTuple):
    """A new grant of this process, and what it has reported. `error`: the growth does not fit."""

    row: _Row
    grant: _Grant
    spent: Size
    freed: Size
    error: QuotaError | None


class QuotaGrants:
    """The grants of one tenant to one process. `pending` returns the growth of writes that have not
    committed; `count` counts what is stored."""

    def __init__(
        self,
        engine: Engine,
        space: str,
        quota: Quota,
        *,
        pending: Callable[[], Size],
        count: Callable[[], Awaitable[Count]],
    ) -> None:
        self._engine = engine
        self._key = f"quota:{blake2b(space.encode(), digest_size=16).hexdigest()}"
        self._quota = quota
        self._pending = pending
        self._count = count
        self._process = secrets.token_hex(8)
        self._granted = self._spent = self._freed = EMPTY
        self._usable_until = 0
        self._count_id, self._count_revision = "", 0
        self._lock = asyncio.Lock()

    async def require(self, growth: Size) -> None:
        """Return when this growth is granted, beside what is pending: the caller counts it as
        pending before it awaits anything. Raises QuotaError if it does not fit."""
        growth = self._quota.limited(growth)
        while not self._covers(growth):
            async with self._lock:
                if not self._covers(growth, is_locked=True):
                    await self._extend(growth)

    def settle(self, change: Size, revision: int) -> None:
        """Note a commit that has changed what is stored by so much. If the count may have seen it,
        it has freed nothing more."""
        change = self._quota.limited(change)
        self._spent += change.growth
        if revision > self._count_revision:
            self._freed += change.shrinkage

    def _covers(self, growth: Size, *, is_locked: bool = False) -> bool:
        if growth == EMPTY:
            return True
        if self._lock.locked() != is_locked or self._engine.clock.now() >= self._usable_until:
            return False
        spent = self._spent + self._quota.limited(self._pending())
        return (spent + growth - self._granted).growth == EMPTY

    async def _extend(self, growth: Size) -> None:
        """Extend the grant; count before a write is rejected, but not again just after a count.

        If the outcome is unknown, the grant is not used, and nothing is reported as freed twice.
        """
        usable_until, freed = self._usable_until, self._freed
        self._usable_until, self._freed = 0, EMPTY
        result = await self._update(lambda row: self._extended(row, growth, freed))
        if not isinstance(result, _Extension):
            start, started = await self._update(lambda row: (None, row)), self._engine.clock.now()
            if start is not None:
                start.expire_grants(started)
            if (
                start is None
                or result is None
                or start.is_older_than(USAGE_RECOUNT_SECONDS_MIN, started)
            ):
                count = await self._count()
                result = await self._update(
                    lambda row: self._counted(row, start, started, count, growth, freed)
                )
        if isinstance(result, _Extension):
            self._use(result)
        else:
            self._usable_until = usable_until
            self._freed += freed
        if isinstance(result, QuotaError):
            raise result

    def _extended(
        self, row: _Row | None, growth: Size, freed: Size
    ) -> tuple[_Row | None, _Extension | QuotaError | None]:
        """Report to the row, and extend the grant. Returns no row and an error if the growth does
        not fit, and None without a count that is new enough."""
        now = self._engine.clock.now()
        if row is None or row.is_older_than(USAGE_AGE_SECONDS_MAX, now):
            return None, None
        row.expire_grants(now)
        if row.grants.pop(self._process, None) is not None:  # else it has been reported
            row.grown += self._spent
            if row.count_id == self._count_id:
                row.freed += freed
        extension = self._extension(row, growth, now)
        return (row, extension) if extension.error is None else (None, extension.error)

    def _counted(
        self,
        row: _Row | None,
        start: _Row | None,
        started: int,
        count: Count,
        growth: Size,
        freed: Size,
    ) -> tuple[_Row | None, _Extension | QuotaError | None]:
        """Replace the count, and extend the grant; if another process has counted meanwhile, only
        extend it. `start` is the row before the count."""
        if row is not None and (start is None or row.count_id != start.count_id):
            return self._extended(row, growth, freed)
        now, size = self._engine.clock.now(), self._quota.limited(count.size)
        counted = _Row(size, started, secrets.token_hex(8), count.revision, count.seconds)
        if row is not None and start is not None:
            row.expire_grants(now)
            row.grants.pop(self._process, None)
            counted.grown, counted.grants = row.grown - start.grown, row.grants
        return counted, self._extension(counted, growth, now, self._freed)

    def _extension(self, row: _Row, growth: Size, now: int, freed: Size = EMPTY) -> _Extension:
        """Write the new grant into the row: what is pending, the growth, and some more. A grant for
        growth that does not fit is only for what is pending. `freed` need not be reported."""
        used, pending = row.used, self._quota.limited(self._pending())
        size, error = pending + growth, None
        try:
            self._quota.check(used + pending, growth)
        except QuotaError as raised:
            size, error = pending, raised
        else:
            size += self._more(used + size)
        row.grants[self._process] = _Grant(size, now + 1_000 * GRANT_SECONDS)
        return _Extension(row, row.grants[self._process], self._spent, freed, error)

    def _more(self, used: Size) -> Size:
        """Return how much is granted beyond what is needed: nothing near the quota."""
        if self._quota.is_near(used):
            return EMPTY
        total, free = self._quota.size, (used - self._quota.size).shrinkage
        return Size(
            min(2 * self._spent.keys, total.keys // _QUOTA_SHARE, free.keys // _FREE_SHARE),
            min(2 * self._spent.bytes, total.bytes // _QUOTA_SHARE, free.bytes // _FREE_SHARE),
        )

    def _use(self, extension: _Extension) -> None:
        self._granted = extension.grant.size
        self._usable_until = extension.grant.until - 1_000 * GRANT_MARGIN_SECONDS
        self._count_id = extension.row.count_id
        self._count_revision = extension.row.count_revision
        self._spent -= extension.spent
        self._freed -= extension.freed
        if extension.error is not None:
            raise extension.error

    async def _update(self, change: Callable[[_Row | None], tuple[_Row | None, R]]) -> R:
        """Change the row. `change` returns no row to leave it as it is."""

        def changed(old: bytes | None) -> tuple[bytes | None, R]:
            row, result = change(_decoded(old))
            return old if row is None else msgspec.json.encode(row), result

        return await update_service_row(self._engine, self._key, changed, kept_seconds=_ROW_SECONDS)


def _decoded(value: bytes | None) -> _Row | None:
    """Return the row; None if there is none, or another program has written it."""
    try:
        return None if value is None else msgspec.json.decode(value, type=_Row)
    except msgspec.DecodeError:
        return None
