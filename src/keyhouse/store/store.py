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

import asyncio
import random
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
)
from contextlib import asynccontextmanager
from typing import Any, Never, TypeVar

from msgspec.structs import replace

from keyhouse.arguments import unnamed_fields
from keyhouse.clock import IdSource, UlidSource
from keyhouse.engine import Batch, Check, Engine, Row, check_limits
from keyhouse.errors import (
    ConflictError,
    ContentionError,
    DataError,
    DeclarationError,
    LimitError,
    NewerError,
    PreparingError,
    UnreadableError,
    UsageError,
)
from keyhouse.keyring import KeyRing
from keyhouse.keys.hmac_segment import INDEX_KEY
from keyhouse.limits import TRANSACTION_ATTEMPTS_MAX
from keyhouse.schema import (
    Counter,
    Log,
    Meta,
    Operation,
    Record,
    Schema,
    migration_job,
)
from keyhouse.store.binding import Binding
from keyhouse.store.entry import ANY, Entry, Unset
from keyhouse.store.jobs.cascade_delete import cascade_delete
from keyhouse.store.jobs.delete_records import clear
from keyhouse.store.jobs.erase_space import FORGET_KEY, WATCH_SECONDS, forget, has_mark
from keyhouse.store.jobs.log_append import append_in
from keyhouse.store.reads.record_reads import RecordReads
from keyhouse.store.sealer import Sealer
from keyhouse.store.transaction import Transaction
from keyhouse.store.write_plan import put_plan

Q = TypeVar("Q")
T = TypeVar("T")
R = TypeVar("R")

_STATE_CHECK_MS = 10_000
"""Interval at which a store that writes reads the version of its space, and its mark."""

_LATER_META = Meta()
"""The rows about the space that a schema without them has by default once it has a migration."""

_NEVER_STORED = "keyhouse-never-stored"
_REVISION_MAX = 2**63 - 1
"""A check of this key at this revision always fails."""

_ATTEMPTS_BEFORE_BACKOFF = 8
"""Attempts of a transaction that loses to other processes before it waits between two of them."""


class Store(RecordReads):
    """A schema on an engine, bound to one space: reads and writes its records.

    `fixed` are the schema's settings, such as `namespace="main"`. `ids` draws the ids of
    logs, and of records whose id is left out.

    `writes_legacy_keys`: records that have legacy keys are written there, unless they are at their
    current keys already. So that old readers find them, until every program knows the current keys.
    None: as the schema says.

    `key_ring` seals and opens the sealed members of records, and makes the HMACs of key fields.
    `owns_engine`: closing the store closes its engine.
    """

    transaction_type: type[Transaction] = Transaction
    """The class of the transactions that `transact` makes: some jobs have their own."""

    def __init__(
        self,
        schema: Schema,
        engine: Engine,
        space: str,
        *,
        ids: IdSource | None = None,
        writes_legacy_keys: bool | None = None,
        key_ring: KeyRing | None = None,
        owns_engine: bool = False,
        **fixed: str,
    ) -> None:
        if not isinstance(schema, Schema):
            raise UsageError("A store is of a Schema.", given=schema)
        if not hasattr(engine, "commit"):
            raise UsageError("A store is on an engine, which `open_engine` opens.", given=engine)
        if ids is not None and not isinstance(ids, IdSource):
            raise UsageError("The ids of a store come from an IdSource.", given=ids)
        if key_ring is not None and not isinstance(key_ring, KeyRing):
            raise UsageError("The keys of a store are a KeyRing.", given=key_ring)
        if unknown := sorted(set(fixed) - set(schema.fixed)):
            raise UsageError(
                "The schema has no such setting.", settings=unknown, known=sorted(schema.fixed)
            )
        ids = ids or UlidSource(engine.clock)
        binding = Binding(
            schema,
            {
                **schema.fixed,
                **fixed,
                **schema.space.bound(space),
                **({} if key_ring is None else {INDEX_KEY: key_ring.index_key}),
            },
            writes_legacy_keys=(
                schema.writes_legacy_keys if writes_legacy_keys is None else writes_legacy_keys
            ),
            sealer=Sealer(key_ring, space, schema.text_before(space)),
            ids=ids,
        )
        super().__init__(engine, space, binding)
        self.schema = schema
        self.key_ring = key_ring
        self._owns_engine = owns_engine
        self.ids: IdSource = ids
        self._retry_lock = asyncio.Lock()
        self._has_mark = has_mark(schema)
        self._is_checked = bool(self._state_keys())
        self._state_checked_at = -_STATE_CHECK_MS

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
        plan = put_plan(self.binding, record, value, fields, ttl)
        entry, revision = await self._transact(lambda tx: tx.apply(plan, expect))
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
        entry, revision = await self._transact(
            lambda tx: tx.update(record, patch, ttl=ttl, expect=expect, **fields)
        )
        return replace(entry, revision=revision)

    async def put_many(self, record: Record[T], values: Iterable[T], /) -> list[Entry[T]]:
        """Write several records that hold all fields of their keys: all of them, or none."""

        async def work(tx: Transaction) -> list[Entry[T]]:
            return [await tx.put(record, value) for value in values]

        values = list(values)
        entries, revision = await self._transact(work)
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

        await self._transact(lambda tx: tx.add(counter, by, **fields))

    async def append(self, log: Log[T], event: T, /, *positional: Never, **fields: Any) -> Entry[T]:
        """Append an event to a log, and fold it in the same commit; return the entry as stored.

        The store assigns its position in the stream. An import may pass it instead, by the name of
        the key's last field (`at=…`); it must be after the last folded event.
        """
        if positional:
            raise unnamed_fields(log, positional)
        entry, revision = await self._transact(
            lambda tx: append_in(tx, self.ids, log, event, **fields)
        )
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
            raise UsageError("A transaction runs an async function of one argument.", given=work)
        return (await self._transact(work, batch_id))[0]

    async def _transact(
        self, work: Callable[[Transaction], Awaitable[R]], batch_id: str | None = None
    ) -> tuple[R, int]:
        """Run `work` as `transact` does; return its result and the revision of the commit."""
        now = self._now()
        if self._is_checked and self._state_check_due(now):
            await self.check_state()
        tx = self.transaction_type(
            self.engine, self.space, self.binding, now, is_first_attempt=True
        )
        started = work(tx)
        try:
            result = await started
        except Exception:
            if not hasattr(started, "__await__"):
                raise _not_async(work, started) from None
            if not tx.rows.assumed:
                raise
            # the error may come of an assumption that is no longer true: decide by what is stored
            return await self._retry(work, batch_id, has_assumed=True)
        try:
            if (revision := await tx.commit(batch_id=batch_id)) is not None:
                return result, revision
        except (ConflictError, DataError, LimitError):  # nothing was written
            if not tx.rows.assumed:
                raise
        return await self._retry(work, batch_id, has_assumed=bool(tx.rows.assumed))

    async def _retry(
        self,
        work: Callable[[Transaction], Awaitable[R]],
        batch_id: str | None,
        *,
        has_assumed: bool,
    ) -> tuple[R, int]:
        """Run work that has lost a race again until it commits.

        Attempts run one at a time within this store, except the first one after an unread
        check failed.
        """

        async def attempt() -> tuple[R, int | None]:
            tx = self.transaction_type(self.engine, self.space, self.binding)
            result = await work(tx)
            return result, await tx.commit(batch_id=batch_id)

        if has_assumed:
            result, revision = await attempt()
            if revision is not None:
                return result, revision
        async with self._retry_lock:
            for number in range(1, TRANSACTION_ATTEMPTS_MAX):
                result, revision = await attempt()
                if revision is not None:
                    return result, revision
                await self._pause(number)
        raise self._contended()

    async def call(self, operation: Operation[Q, R], request: Q | None = None, /) -> R:
        """Run an operation of one's own in this space; return its reply. As in a service, one with
        `access="read"` must not write."""
        Operation.check_call(operation, request)
        return await operation(
            self if operation.access == "write" else ReadOnlyStore(self), request
        )

    @asynccontextmanager
    async def transaction(self, *, batch_id: str | None = None) -> AsyncIterator[Transaction]:
        """One transaction, committed at the end of the block. Raises ContentionError if it lost a
        race (`transact` retries)."""
        if self._is_checked and self._state_check_due(self._now()):
            await self.check_state()
        tx = Transaction(self.engine, self.space, self.binding)
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
        self._state_checked_at = -_STATE_CHECK_MS  # the next write looks whether it has ended
        return await forget(
            self.engine, self.space, watch_seconds=watch_seconds, marked=self._has_mark
        )

    async def clear(self, *, on_progress: Callable[[int], None] | None = None) -> int:
        """Delete all records of the space, and every row derived from them; return their number.

        The version of the space stays. Repeat a call that was interrupted: it continues.
        `on_progress` is called with the number so far. To erase a space without a trace, use
        `forget`.
        """
        if on_progress is not None and not callable(on_progress):
            raise UsageError("Progress is reported to a function.", on_progress=on_progress)
        return (await clear(self, on_progress))[0]

    async def close(self) -> None:
        """Close the engine, if the store was opened with its URL; else do nothing."""
        if self._owns_engine:
            await self.engine.close()

    def _state_check_due(self, now: int) -> bool:
        """Return whether the state of the space was not read yet, or not for a while."""
        return not 0 <= now - self._state_checked_at < _STATE_CHECK_MS

    async def check_state(self) -> None:
        """Raise NewerError if newer code has migrated the space or is migrating it: this code would
        write the old shape (ADR 0044). Raise PreparingError while the space is being forgotten.
        """
        now, keys = self._now(), self._state_keys()
        rows = dict(zip(keys, await self.engine.read(self.space, list(keys.values())), strict=True))
        if rows.pop(FORGET_KEY, None) is not None:
            raise PreparingError(
                "The space is being erased: try again later.", space=self.space, retry_after=1
            )
        self._reject_newer(rows)
        self._state_checked_at = now

    async def check_newer(self) -> None:
        """Raise NewerError if newer code has migrated the space or is migrating it."""
        if keys := self.version_keys():
            rows = await self.engine.read(self.space, list(keys.values()))
            self._reject_newer(dict(zip(keys, rows, strict=True)))

    def version_keys(self) -> dict[str, str]:
        """Return the keys of the rows by which the space is known to be newer: its `version`, and
        the `job` of the migration after the last one that this code knows.

        A schema without such rows is of version 0: they are where a later version of it has them
        by default, unless the keys are its own.
        """
        meta, job = self.schema.meta, migration_job(self.schema.version + 1)
        if meta is not None:
            record = self.binding.record
            return {
                "version": record(meta.version).template.build({}),
                "job": record(meta.job).template.build({"name": job}),
            }
        before = self.schema.text_before(self.space)
        keys = {
            "version": before + _LATER_META.version.template.build({}),
            "job": before + _LATER_META.job.template.build({"name": job}),
        }
        return {name: key for name, key in keys.items() if self.schema.find(key) is None}

    def _state_keys(self) -> dict[str, str]:
        mark = {FORGET_KEY: FORGET_KEY} if self._has_mark else {}
        return mark | self.version_keys()

    def _reject_newer(self, rows: Mapping[str, Row | None]) -> None:
        stored = rows.get("version")
        if rows.get("job") is None:
            if stored is None:
                return
            version = (self.schema.meta or _LATER_META).version
            try:
                if version.decode(stored.value, stored.key) <= self.schema.version:
                    return
            except UnreadableError:  # `verify` reports it, and its repair must be written
                return
        raise NewerError(
            "Newer code has migrated the space or is migrating it: use the newer program. If this"
            " is not the schema of the space, open its own file or space.",
            space=self.space,
            known=self.schema.version,
        )

    async def _pause(self, attempt: int) -> None:
        if attempt >= _ATTEMPTS_BEFORE_BACKOFF:
            await asyncio.sleep(random.uniform(0, 0.001 * min(attempt, 50)))

    def _contended(self) -> ContentionError:
        return ContentionError(
            "The transaction lost every race: too many writers of the same rows. Try again later.",
            attempts=TRANSACTION_ATTEMPTS_MAX,
            space=self.space,
        )


class ReadOnlyStore(Store):
    """Rejects the writes of an operation with `access="read"`, with DeclarationError."""

    def __init__(self, store: Store) -> None:
        vars(self).update(vars(store))

    async def _transact(
        self, work: Callable[[Transaction], Awaitable[R]], batch_id: str | None = None
    ) -> Never:
        raise write_in_read()

    def transaction(self, *, batch_id: str | None = None) -> Never:
        raise write_in_read()

    async def forget(self, **named: Any) -> Never:
        raise write_in_read()

    async def clear(self, **named: Any) -> Never:
        raise write_in_read()


def write_in_read() -> DeclarationError:
    """Return the error of a write in an operation with `access="read"`."""
    return DeclarationError(
        "An operation with access=read must not write: declare it with access=write."
    )


def _not_async(work: Callable[..., object], returned: object) -> UsageError:
    return UsageError(
        "A transaction runs an async function: write `async def work(tx): …`, or return what the "
        "verb of `tx` returns.",
        work=getattr(work, "__qualname__", repr(work)),
        returned=type(returned).__name__,
    )
