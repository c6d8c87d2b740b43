"""Results that are computed from records, and reused while those records stay as they are."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from keyhouse.engine import FOREIGN_REVISION, Check, Row
from keyhouse.store.store import Store
from keyhouse.store.writes.assumptions import assume
from keyhouse.store.writes.transaction import Transaction

__all__ = ["CachedReads"]

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

_RESULTS_MAX = 1_000
ROW_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of the rows from which the results of one cache were computed."""


class _Cached(NamedTuple, Generic[R]):
    """A result, and the rows from which it was computed: their keys and revisions.

    `live_until`: when the first of their records expires by its own field; its row may stay.
    `row_bytes`: the size of the rows.
    """

    keys: list[str]
    revisions: list[int | None]
    checks: dict[str, Check]
    live_until: int | None
    row_bytes: int
    result: R


class CachedReads(Generic[K, R]):
    """A cache of what `read` returns for a name: a text, such as a session's, or several ids.

    `read` takes the name and a transaction, and reads records by key in it; it decides by nothing
    else. Every `get` reads the rows of these records again, by one call of the engine, and compares
    their revisions: a change of any of them, by any process, is seen at once. A cached result
    saves decoding the records, and reading one after the other. None is not cached.

    The rows of these records must be written only by Keyhouse, or get a new revision with each
    change: a change of a row's value by SQL, or of an item in DynamoDB, that leaves the revision as
    it is, is not seen. A result by a row that has no revision (`FOREIGN_REVISION`) is not cached.

    `get_in` takes a cached result as it is, and leaves the comparison to the commit of a
    transaction (see `assumptions`). Results are shared: do not change them.

    The oldest results are dropped beyond `results_max`, and beyond `ROW_BYTES_MAX` of the rows from
    which they were computed. A decoded record takes two to three times the memory of its row.
    """

    __slots__ = ("_cached", "_read", "_results_max", "_row_bytes", "_store")

    def __init__(
        self,
        store: Store,
        read: Callable[[K, Transaction], Awaitable[R | None]],
        *,
        results_max: int = _RESULTS_MAX,
    ) -> None:
        self._store = store
        self._read = read
        self._results_max = results_max
        self._row_bytes = 0
        self._cached: dict[K, _Cached[R]] = {}

    def __len__(self) -> int:
        return len(self._cached)

    async def get(self, name: K) -> R | None:
        """Return what `read` returns now."""
        store, cached = self._store, self._cached.get(name)
        if cached is not None and (
            cached.live_until is None or store.engine.clock.now() < cached.live_until
        ):
            rows = await store.engine.read(store.space, cached.keys)
            if [None if row is None else row.revision for row in rows] == cached.revisions:
                return cached.result
        return await self._computed(name, Transaction(store))

    async def get_in(self, tx: Transaction, name: K) -> R | None:
        """Return what `read` returns, for a transaction that has read nothing yet: as it was last,
        which the commit checks. An attempt that follows a lost race, or an error, reads; so does
        one that has written a record of the result."""
        cached = self._cached.get(name)
        if (
            cached is not None
            and (cached.live_until is None or tx.now < cached.live_until)
            and assume(tx.rows, cached.checks)
        ):
            return cached.result
        return await self._computed(name, tx)

    async def _computed(self, name: K, tx: Transaction) -> R | None:
        self._drop(name)
        rows = tx.rows
        is_unused, assumed = not rows.stored and not rows.pending, rows.assumed
        result = await self._read(name, tx)
        # else it may depend on what was read before, is not committed, or was not read
        if result is not None and is_unused and not rows.pending and rows.assumed is assumed:
            self._keep(name, rows.stored, tx.records.live_until, result)
        return result

    def _keep(
        self, name: K, rows: Mapping[str, Row | None], live_until: int | None, result: R
    ) -> None:
        checks = {
            key: Check(key, None if row is None else row.revision) for key, row in rows.items()
        }
        revisions = [check.revision for check in checks.values()]
        row_bytes = sum([0 if row is None else len(row.value) for row in rows.values()])
        if not checks or FOREIGN_REVISION in revisions or row_bytes > ROW_BYTES_MAX:
            return
        self._drop(name)
        while self._cached and (
            len(self._cached) >= self._results_max or self._row_bytes + row_bytes > ROW_BYTES_MAX
        ):
            self._drop(next(iter(self._cached)))  # the oldest
        self._row_bytes += row_bytes
        self._cached[name] = _Cached([*checks], revisions, checks, live_until, row_bytes, result)

    def _drop(self, name: K) -> None:
        if (cached := self._cached.pop(name, None)) is not None:
            self._row_bytes -= cached.row_bytes
