"""Delete the records of a span with their derived rows, or a whole space: see `delete_records`.

Records written meanwhile are deleted if the run reaches them.
"""

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from typing import Any

import msgspec

from keyhouse.engine import Engine, Row, Span
from keyhouse.errors import UsageError
from keyhouse.keyring import KeyRing
from keyhouse.schema import KeyMatch, Schema
from keyhouse.store.jobs.chunk import grouped
from keyhouse.store.jobs.delete_records import (
    GROUP_RECORDS,
    PASSES_MAX,
    RecordKey,
    delete_group,
    delete_rows,
    still_written,
)
from keyhouse.store.reads.long_read import rows
from keyhouse.store.store import Store

FoundKey = tuple[str, KeyMatch]
"""The key of a record, and its declaration."""


class BulkDeleteResult(msgspec.Struct):
    """`records` were deleted; `left` are unreadable, so that their derived rows are not known."""

    records: int = 0
    left: int = 0


class BulkDelete:
    """Deletes records of a schema in one space.

    `on_progress` is called with the number of records deleted.
    """

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        space: str,
        on_progress: Callable[[int], None] | None = None,
        *,
        key_ring: KeyRing | None = None,
    ) -> None:
        self._schema = schema
        self._key_ring = key_ring
        self._engine = engine
        self._space = space
        self._report = on_progress or (lambda records: None)
        self._meta = () if schema.meta is None else schema.meta.records
        self._stores: dict[tuple[tuple[str, Any], ...], Store] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """Stop after the commit in flight; `run` and `empty` then return what was done."""
        self._is_stopped = True

    async def records(self, span: Span) -> AsyncIterator[tuple[Row, KeyMatch]]:
        """Yield the records of the span that would be deleted: all but the store's own rows."""
        async for row in rows(self._engine, self._space, span):
            if (match := self._record(row.key)) is not None:
                yield row, match

    def _record(self, key: str) -> KeyMatch | None:
        """Return the declaration of a record's key; None for any other, and for the store's own
        rows."""
        match = self._schema.find(key)
        if match is None or not match.is_record or match.record.declared in self._meta:
            return None
        return match

    async def run(self, span: Span) -> BulkDeleteResult:
        """Delete the records of the span, with their derived rows and all that belongs to them.

        Raises LinkError if records outside the group refer to one of them.
        """
        return await self._run(self._found(span), linked=True)

    async def run_keys(self, keys: AsyncIterable[str]) -> BulkDeleteResult:
        """Delete the records with these keys, as `run` does: for those of a scan by an index.

        Records that are gone already do not count. Raises UsageError for the key of no record.
        """
        return await self._run(self._named(keys), linked=True)

    async def _found(self, span: Span) -> AsyncGenerator[FoundKey, None]:
        async for row, match in self.records(span):
            yield row.key, match

    async def _named(self, keys: AsyncIterable[str]) -> AsyncGenerator[FoundKey, None]:
        async for key in keys:
            if (match := self._record(key)) is None:
                raise UsageError("The key is not that of a record.", key=key)
            yield key, match

    async def _run(
        self, records: AsyncGenerator[FoundKey, None], *, linked: bool
    ) -> BulkDeleteResult:
        result = BulkDeleteResult()
        async for group in grouped(records, GROUP_RECORDS):
            if self._is_stopped:
                break
            await self._delete(group, result, linked)
        return result

    async def empty(self) -> BulkDeleteResult:
        """Empty the space: delete every record with its rows, then all rows that are left."""
        result = BulkDeleteResult()
        for _ in range(PASSES_MAX):
            once = await self._run(self._found(Span()), linked=False)
            result.records += once.records
            if self._is_stopped or not await delete_rows(self._engine, self._space, self._rest()):
                return result
        raise still_written(self._space)

    async def _rest(self) -> AsyncGenerator[Row, None]:
        async for row in rows(self._engine, self._space):
            if self._is_stopped:
                return
            yield row

    async def _delete(
        self, pending: list[FoundKey], result: BulkDeleteResult, linked: bool
    ) -> None:
        async def count_unreadable(key: str) -> int:
            result.left += 1
            return 0

        by_store: dict[Store, list[RecordKey]] = {}
        for key, match in pending:
            store = self._store(match)
            fields = {
                name: value
                for name, value in match.fields.items()
                if name not in store.binding.values
            }
            record_key = RecordKey(key, match.record.declared, fields)
            by_store.setdefault(store, []).append(record_key)
        for store, group in by_store.items():
            result.records += await delete_group(store, group, count_unreadable, linked=linked)
            self._report(result.records)

    def _store(self, match: KeyMatch) -> Store:
        """Return the store with the settings that this key has."""
        fixed = tuple(
            (name, value) for name, value in match.fields.items() if name in self._schema.fixed
        )
        if fixed not in self._stores:
            settings: dict[str, Any] = dict(fixed)
            self._stores[fixed] = Store(
                self._schema, self._engine, self._space, key_ring=self._key_ring, **settings
            )
        return self._stores[fixed]
