"""The store: a schema on an engine, bound to one space. It is where a program reads and writes.

    store = Store(SCHEMA, engine, "library-1")
    await store.put(BOOK, Book(id=…, title="…"))
    book = await store.get(BOOK, id=…)
    async for entry in store.scan(BOOK, by=BOOKS_BY_SERIES, series_id=…): …

Every write is a transaction that is retried when it loses a race. A store caches no values, only
the revisions of records that others are linked to, so there may be any number of them; but with one
store per space, writers that lost a race wait for each other instead of racing again, and the
version of the space and the records that others are linked to are read once.
"""

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
)
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, Never, TypeVar

from msgspec.structs import replace

from keyhouse.advice.arguments import unnamed_fields
from keyhouse.advice.nearest import nearest
from keyhouse.clock import IdSource, UlidSource
from keyhouse.engine import Batch, Check, Engine, check_limits
from keyhouse.errors import ContentionError, UsageError
from keyhouse.keyring import KeyRing
from keyhouse.keys.hmac_segment import INDEX_KEY
from keyhouse.schema import (
    Counter,
    Log,
    Operation,
    Record,
    Schema,
)
from keyhouse.store.entry import ANY, Entry, Unset
from keyhouse.store.jobs.cascade_delete import cascade_delete
from keyhouse.store.jobs.delete_records import clear
from keyhouse.store.jobs.erase_space import WATCH_SECONDS, forget
from keyhouse.store.reads.record_reads import RecordReads
from keyhouse.store.sealer import Sealer
from keyhouse.store.space_guard import SpaceGuard
from keyhouse.store.writes.attempts import Attempts, NoAttempts
from keyhouse.store.writes.link_guard import SeenOwners
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import put_plan

Q = TypeVar("Q")
T = TypeVar("T")
R = TypeVar("R")

_NEVER_STORED = "keyhouse-never-stored"
_REVISION_MAX = 2**63 - 1
"""A check of this key at this revision always fails."""


class Store(RecordReads):
    """A schema on an engine, bound to one space: reads and writes its records.

    `fixed` are the schema's settings, such as `namespace="main"`. `ids` draws the ids of
    logs, and of records whose id is left out.

    `key_ring` seals and opens the sealed members of records, and makes the HMACs of key fields.
    `owns_engine`: closing the store closes its engine.
    """

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        space: str,
        *,
        ids: IdSource | None = None,
        key_ring: KeyRing | None = None,
        owns_engine: bool = False,
        **fixed: str,
    ) -> None:
        if not isinstance(schema, Schema):
            raise UsageError("A store is of a Schema.", given=schema)
        if not hasattr(engine, "commit"):
            raise UsageError("A store is on an engine, which `open_engine` opens.", given=engine)
        if unknown := sorted(set(fixed) - set(schema.fixed)):
            raise UsageError(
                "The schema has no such setting.",
                settings=unknown,
                **nearest(unknown[0], sorted(schema.fixed)),
            )
        ids = ids or UlidSource(engine.clock)
        binding = schema.bind(
            {
                **schema.fixed,
                **fixed,
                **schema.space.bound(space),
                **({} if key_ring is None else {INDEX_KEY: key_ring.index_key}),
            },
            sealer=Sealer(key_ring, space, schema.text_before(space)),
        )
        super().__init__(engine, space, binding)
        self.schema = schema
        self.key_ring = key_ring
        self._owns_engine = owns_engine
        self.ids: IdSource = ids
        self.seen_owners: SeenOwners = {}
        self.attempts = Attempts()
        self.guard = SpaceGuard(engine, space, binding)

    async def put(
        self,
        record: Record[T],
        value: T,
        /,
        *positional: Never,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Write a record and all that is derived from it; return the entry as stored. See
        `Transaction.put`."""
        if positional:
            raise unnamed_fields(record, positional)
        plan = put_plan(self.binding, self.ids, record, value, fields, ttl)
        entry, revision = await self.attempts.run(self, lambda tx: tx.apply(plan, expect))
        return replace(entry, revision=revision)

    async def update(
        self,
        record: Record[T],
        patch: Any,
        /,
        *positional: Never,
        ttl: float | None = None,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> Entry[T]:
        """Change some members of a stored record by a merge patch (RFC 7396), whatever others write
        meanwhile; return the entry as stored. See `Transaction.update`."""

        if positional:
            raise unnamed_fields(record, positional)
        entry, revision = await self.attempts.run(
            self, lambda tx: tx.update(record, patch, ttl=ttl, expect=expect, **fields)
        )
        return replace(entry, revision=revision)

    async def put_many(self, record: Record[T], values: Iterable[T], /) -> list[Entry[T]]:
        """Write several records that hold all fields of their keys: all of them, or none."""

        async def work(tx: Transaction) -> list[Entry[T]]:
            return [await tx.put(record, value) for value in values]

        values = list(values)
        entries, revision = await self.attempts.run(self, work)
        return [replace(entry, revision=revision) for entry in entries]

    async def applied(self, batch_id: str) -> int | None:
        """Return the revision of the transaction with this batch id; None if there was none within
        `BATCH_ID_KEPT_SECONDS`."""
        never = Check(_NEVER_STORED, _REVISION_MAX)
        batch = Batch(checks=(never,), id=batch_id)
        check_limits(batch, self.engine.capabilities)
        return await self.engine.commit(self.space, batch)

    async def delete(
        self,
        record: Record[Any],
        /,
        *positional: Never,
        expect: int | Unset | None = ANY,
        **fields: Any,
    ) -> bool:
        """Delete a record, all that is derived from it and all that belongs to it; return whether
        it was there.

        A job deletes more than one commit can hold; another call resumes it if this one is
        interrupted (see `cascade_delete`). Raises LinkError if other records still refer to it.
        """
        if positional:
            raise unnamed_fields(record, positional)
        if self.binding.has_links and self.binding.links(self.binding.record(record)).dependents:
            return await cascade_delete(self, record, expect, fields)
        return await self.transact(lambda tx: tx.delete(record, expect=expect, **fields))

    async def add(self, counter: Counter, by: int, /, *positional: Never, **fields: Any) -> None:
        """Add to a counter. No concurrent add is lost."""
        if positional:
            raise unnamed_fields(counter, positional)

        await self.attempts.run(self, lambda tx: tx.add(counter, by, **fields))

    async def append(self, log: Log[T], event: T, /, *positional: Never, **fields: Any) -> Entry[T]:
        """Append an event to a log, and fold it in the same commit; return the entry as stored.

        The store assigns its position in the stream. An import may pass it instead, by the name of
        the key's last field (`at=…`); it must be after the last folded event.
        """
        if positional:
            raise unnamed_fields(log, positional)
        entry, revision = await self.attempts.run(self, lambda tx: tx.append(log, event, **fields))
        return replace(entry, revision=revision)

    async def transact(
        self, work: Callable[[Transaction], Awaitable[R]], *, batch_id: str | None = None
    ) -> R:
        """Run `work` in a transaction and commit it; run it again from the start when it loses a
        race.

        `work` must only read and write through the transaction. With a `batch_id`, a repeat after
        an unknown outcome is applied once.
        """
        if not callable(work):
            raise UsageError(
                "A transaction runs an async function of one argument: pass the function itself,"
                " and do not call it.",
                given=work,
            )
        return (await self.attempts.run(self, work, batch_id))[0]

    async def call(self, operation: Operation[Q, R], request: Q | None = None, /) -> R:
        """Run an operation of one's own in this space; return its reply. As in a service, one with
        `access="read"` must not write."""
        Operation.check_call(operation, request)
        store = self if operation.access == "write" else self.with_attempts(NoAttempts())
        return await operation(store, request)

    def with_attempts(self, attempts: Attempts) -> "Store":
        """Return the same store, whose transactions are run by these attempts."""
        store = copy(self)
        store.attempts = attempts
        return store

    @asynccontextmanager
    async def transaction(self, *, batch_id: str | None = None) -> AsyncIterator[Transaction]:
        """One transaction, committed at the end of the block. Raises ContentionError if it lost a
        race (`transact` retries)."""
        self.attempts.check("transaction")
        if self.guard.is_due(self._now()):
            await self.guard.check()
        tx = Transaction(self)
        yield tx
        if await tx.commit(batch_id=batch_id) is None:
            raise ContentionError(
                "Something read in the transaction changed before it committed: run it again."
            )

    async def forget(self, *, watch_seconds: float = WATCH_SECONDS) -> int:
        """Erase the whole space, without a trace in rows, change log or files.

        Returns the number of rows deleted. Repeat a call that was interrupted: it continues, as a
        running service does by itself. Stop the writers of the space first: see
        `keyhouse.store.forget`.
        """
        self.attempts.check("forget")
        self.guard.recheck()  # the next write looks whether it has ended
        return await forget(
            self.engine, self.space, watch_seconds=watch_seconds, marked=self.guard.has_mark
        )

    async def clear(self, *, on_progress: Callable[[int], None] | None = None) -> int:
        """Delete all records of the space, and every row derived from them; return their number.

        The version of the space stays. Repeat a call that was interrupted: it continues.
        `on_progress` is called with the number so far. To erase a space without a trace, use
        `forget`.
        """
        self.attempts.check("clear")
        if on_progress is not None and not callable(on_progress):  # before anything is deleted
            raise UsageError("Progress is reported to a function.", on_progress=on_progress)
        return (await clear(self, on_progress))[0]

    async def close(self) -> None:
        """Close the engine, if the store was opened with its URL; else do nothing."""
        if self._owns_engine:
            await self.engine.close()
