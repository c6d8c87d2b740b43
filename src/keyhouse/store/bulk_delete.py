"""Removal: many records at once, each with its derived rows, some of them in one commit; or all that a space holds.

A removal that is cut off has removed some records whole and the others not at all; run again, it goes on. What others write
meanwhile is removed too if it is met, and else stays.
"""

from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec

from keyhouse.engine import Batch, Check, Engine, Row, Span
from keyhouse.errors import ContentionError, DataError, LimitError
from keyhouse.schema import KeyMatch, Record, Schema
from keyhouse.store.pagination import rows
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

_TOGETHER: Final = 50
"""Records that are deleted in one commit, where that fits."""

_PASSES_MAX: Final = 10


class BulkDeleteResult(msgspec.Struct):
    """`records` were removed; `left` could not be read, so that nobody knows what follows from them: see `verify`."""

    records: int = 0
    left: int = 0


class BulkDelete:
    """Of a schema's rows in one space. `on_progress` is told how many records were removed."""

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        space: str,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self._schema = schema
        self._engine = engine
        self._space = space
        self._report = on_progress or (lambda records: None)
        self._kept = frozenset(
            id(record) for record in (schema.meta.records if schema.meta is not None else ())
        )
        self._stores: dict[tuple[tuple[str, Any], ...], Store] = {}
        self._is_stopped = False

    def stop(self) -> None:
        """End behind the commit that is under way: what `run` and `empty` then answer is what was done."""
        self._is_stopped = True

    async def records(self, span: Span) -> AsyncIterator[tuple[Row, KeyMatch]]:
        """What would be removed: the records of the span, without those that the store keeps about itself."""
        async for row in rows(self._engine, self._space, span):
            found = self._schema.find(row.key)
            if (
                found is not None
                and isinstance(found.declared, Record)
                and id(found.record) not in self._kept
            ):
                yield row, found

    async def run(self, span: Span) -> BulkDeleteResult:
        """Remove the records of the span, with all that follows from them."""
        done = BulkDeleteResult()
        waiting: list[tuple[Row, KeyMatch]] = []
        async for each in self.records(span):
            waiting.append(each)
            if len(waiting) == _TOGETHER:
                await self._remove(waiting, done)
                waiting = []
            if self._is_stopped:
                return done
        await self._remove(waiting, done)
        return done

    async def empty(self) -> BulkDeleteResult:
        """Remove the space: every record with what follows from it, then what is left, unreadable or of no record."""
        done = BulkDeleteResult()
        for _ in range(_PASSES_MAX):
            once = await self.run(Span())
            done.records += once.records
            if self._is_stopped or not await self._sweep_up():
                return done
        raise ContentionError(
            "Others go on writing in the space: stop them first.", space=self._space
        )

    async def _sweep_up(self) -> bool:
        """Whether there was anything left."""
        batch: list[Row] = []
        met = False
        async for row in rows(self._engine, self._space):
            met = True
            batch.append(row)
            if len(batch) == min(_TOGETHER, self._engine.capabilities.commit_rows_max):
                await self._drop(batch)
                batch = []
            if self._is_stopped:
                return met
        await self._drop(batch)
        return met

    async def _drop(self, batch: list[Row]) -> None:
        """As they are seen: a row that was changed meanwhile is seen again in the next pass."""
        if batch:
            checks = tuple(Check(row.key, row.revision) for row in batch)
            await self._engine.commit(
                self._space, Batch(checks, deletes=tuple(row.key for row in batch))
            )

    async def _remove(self, waiting: list[tuple[Row, KeyMatch]], done: BulkDeleteResult) -> None:
        """In one commit; in halves, when that does not fit or one of them does not decode."""
        by_store: dict[int, tuple[Store, list[tuple[Row, KeyMatch]]]] = {}
        for row, found in waiting:
            store = self._store(found)
            by_store.setdefault(id(store), (store, []))[1].append((row, found))
        for store, founds in by_store.values():
            await self._remove_of(store, founds, done)

    async def _remove_of(
        self, store: Store, founds: list[tuple[Row, KeyMatch]], done: BulkDeleteResult
    ) -> None:
        async def work(tx: Transaction) -> int:
            await tx.prefetch([row.key for row, _ in founds])
            return sum(
                [await tx.delete(found.record, **self._fields(store, found)) for _, found in founds]
            )

        try:
            done.records += await store.transact(work)
            self._report(done.records)
        except (LimitError, DataError) as error:
            if len(founds) > 1:
                half = len(founds) // 2
                await self._remove_of(store, founds[:half], done)
                await self._remove_of(store, founds[half:], done)
            elif isinstance(error, DataError):
                done.left += 1
            else:
                raise

    def _store(self, found: KeyMatch) -> Store:
        """One for each choice of the schema's settings, as the key has them."""
        fixed = tuple(
            (name, value) for name, value in found.fields.items() if name in self._schema.fixed
        )
        if fixed not in self._stores:
            settings: dict[str, Any] = dict(fixed)
            self._stores[fixed] = Store(self._schema, self._engine, self._space, **settings)
        return self._stores[fixed]

    def _fields(self, store: Store, found: KeyMatch) -> dict[str, Any]:
        return {
            name: value for name, value in found.fields.items() if name not in store.binding.values
        }
