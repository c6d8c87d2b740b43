"""Configs through their life: made, read, replaced, deleted, one at a time or many at once. It knows nothing of HTTP.

What the server decides is never taken from the caller: the id of a config that is there, its times, and whose it is.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import (
    ConflictError,
    KeyFieldError,
    LimitError,
    NotFoundError,
    RecordError,
    RevisionError,
)
from keyhouse.schema import MILLISECONDS
from keyhouse.store import Entry, Transaction
from keyhouse.systems.streamkit.customers import Customer, Customers
from keyhouse.systems.streamkit.limits import BATCH_OPERATIONS_MAX
from keyhouse.systems.streamkit.quota import NOTHING, QuotaSize, Room, size_of
from keyhouse.systems.streamkit.schema import NO_IDS
from keyhouse.systems.streamkit.versions import CONFIG_PAIRS, Pair

FORCED: Final = frozenset({"id", "createdAt", "updatedAt", "customer", "customerId"})
"""Members that a caller can't set: what is sent under these names is left out."""

R = TypeVar("R")

Plain = Mapping[str, Any]
Guard = Callable[[int], None]
"""Is given the revision of what is about to be replaced or deleted, and raises when that must not happen."""


class Kept(msgspec.Struct, frozen=True):
    """A config as it is stored, and the revision at which it is."""

    id: str
    value: bytes
    revision: int


class Create(msgspec.Struct, frozen=True, tag_field="op", tag="create", forbid_unknown_fields=True):
    """A new config. Without an `id` in it, the server makes one."""

    config: dict[str, Any]


class Update(
    msgspec.Struct,
    frozen=True,
    tag_field="op",
    tag="update",
    forbid_unknown_fields=True,
    rename="camel",
):
    """A config in place of the one that is there; `ifMatch`: only if that one has this ETag."""

    id: str
    config: dict[str, Any]
    if_match: str | None = None


class Delete(msgspec.Struct, frozen=True, tag_field="op", tag="delete", forbid_unknown_fields=True):
    """No config. There need not be one."""

    id: str


Operation = Create | Update | Delete


class Done(msgspec.Struct, frozen=True):
    """What became of one operation: the config that is there now, or whether there was one."""

    op: str
    id: str
    value: bytes | None = None
    deleted: bool = False


class Configs:
    def __init__(self, customers: Customers) -> None:
        self._customers = customers
        self._engine = customers.engine
        self._version = customers.keys

    async def read(self, customer: str, category: str, id: str) -> Row:
        """The row as it is stored: its value is the config's JSON."""
        try:
            row = await CONFIG_PAIRS[category].row(self._engine, customer, id)
        except KeyFieldError:
            row = None  # what can't be an id has no config
        if row is None:
            raise NotFoundError("There is no such config.", type=category, id=id)
        return row

    async def create(self, customer: str, category: str, plain: Plain) -> Kept:
        pair, who = CONFIG_PAIRS[category], self._customers.get(customer)
        id = self._new_id(who, plain)

        async def work(tx: Transaction, room: Room) -> Kept:
            kept, added = await self._create(tx, pair, id, plain)
            room.reserve(added)
            return kept

        return _at(*await self._write(who, work))

    async def replace(
        self, customer: str, category: str, id: str, plain: Plain, guard: Guard
    ) -> Kept:
        pair = CONFIG_PAIRS[category]

        async def work(tx: Transaction, room: Room) -> Kept:
            kept, added = await self._replace(tx, pair, id, plain, guard)
            room.reserve(added)
            return kept

        return _at(*await self._write(self._customers.get(customer), work))

    async def delete(self, customer: str, category: str, id: str, guard: Guard) -> bool:
        """Whether there was one."""
        pair = CONFIG_PAIRS[category]

        async def work(tx: Transaction, room: Room) -> bool:
            gone = await self._delete(tx, pair, id, guard)
            room.reserve(gone or NOTHING)
            return gone is not None

        try:
            return (await self._write(self._customers.get(customer), work))[0]
        except KeyFieldError:
            return False  # what can't be an id has no config

    async def batch(
        self, customer: str, category: str, operations: list[Operation], tag: Callable[[int], str]
    ) -> list[Done]:
        """All of them in one commit, or none; the error says which one stood in the way. `tag` writes a revision."""
        if len(operations) > BATCH_OPERATIONS_MAX:
            raise LimitError(
                "A batch has too many operations: send several.",
                operations=len(operations),
                limit=BATCH_OPERATIONS_MAX,
            )
        pair, who = CONFIG_PAIRS[category], self._customers.get(customer)
        ids = [
            self._new_id(who, each.config) if isinstance(each, Create) else each.id
            for each in operations
        ]
        if len(set(ids)) != len(ids):
            twice = next(id for id in ids if ids.count(id) > 1)
            raise RecordError("A batch names each config once.", id=twice)

        async def work(tx: Transaction, room: Room) -> list[Done]:
            done, added = [], NOTHING
            for number, (operation, id) in enumerate(zip(operations, ids, strict=True)):
                try:
                    each, size = await self._one(tx, pair, operation, id, tag)
                except (ConflictError, NotFoundError, RecordError, KeyFieldError) as error:
                    error.fields["operation"] = number
                    raise
                done.append(each)
                added = added + size
            room.reserve(added)
            return done

        return (await self._write(who, work))[0]

    async def _write(
        self, customer: Customer, work: Callable[[Transaction, Room], Awaitable[R]]
    ) -> tuple[R, int]:
        """Run `work` until it is committed, within the customer's quota; its result, and the revision of the commit."""

        async def reserved(room: Room) -> tuple[R, int]:
            async def attempt(tx: Transaction) -> tuple[R, Transaction]:
                return await work(tx, room), tx

            result, tx = await customer.store.transact(attempt)
            return result, tx.revision

        return await customer.quota.within(reserved)

    async def _one(
        self,
        tx: Transaction,
        pair: Pair[Any],
        operation: Operation,
        id: str,
        tag: Callable[[int], str],
    ) -> tuple[Done, QuotaSize]:
        if isinstance(operation, Delete):
            gone = await self._delete(tx, pair, id, _anything)
            return Done("delete", id, deleted=gone is not None), gone or NOTHING
        if isinstance(operation, Create):
            kept, added = await self._create(tx, pair, id, operation.config)
            return Done("create", id, kept.value), added
        wanted = operation.if_match

        def guard(revision: int) -> None:
            if wanted is not None and wanted not in ("*", tag(revision)):
                raise RevisionError(
                    "The config is not the one that ifMatch names: read it again.",
                    now=tag(revision),
                )

        kept, added = await self._replace(tx, pair, id, operation.config, guard)
        return Done("update", id, kept.value), added

    async def _create(
        self, tx: Transaction, pair: Pair[Any], id: str, plain: Plain
    ) -> tuple[Kept, QuotaSize]:
        before = await pair.entry(tx, id)
        if before is not None:
            raise ConflictError(
                "There is a config of this id: replace it, or choose another id.", id=id
            )
        return await self._put(tx, pair, id, plain, None)

    async def _replace(
        self, tx: Transaction, pair: Pair[Any], id: str, plain: Plain, guard: Guard
    ) -> tuple[Kept, QuotaSize]:
        try:
            before = await pair.entry(tx, id)
        except KeyFieldError:
            before = None  # what can't be an id has no config
        if before is None:
            raise NotFoundError("There is no such config.", type=pair.category, id=id)
        guard(before.revision)
        return await self._put(tx, pair, id, plain, before)

    async def _delete(
        self, tx: Transaction, pair: Pair[Any], id: str, guard: Guard
    ) -> QuotaSize | None:
        before = await pair.entry(tx, id)
        if before is None:
            return None
        guard(before.revision)
        size = await _size(tx, before)
        await pair.delete(tx, id)
        return NOTHING - size

    async def _put(
        self, tx: Transaction, pair: Pair[Any], id: str, plain: Plain, before: Entry[Any] | None
    ) -> tuple[Kept, QuotaSize]:
        now = MILLISECONDS.format(tx.now)
        created, updated = now, now
        if before is not None:
            created, updated = before.record.created_at, max(now, before.record.updated_at)
        told = {name: value for name, value in plain.items() if name not in FORCED}
        value = pair.v1.accepted({"id": id, **told, "createdAt": created, "updatedAt": updated})
        size = NOTHING if before is None else await _size(tx, before)
        entry = await pair.restore(tx, value, before, self._version)
        written = await tx.row(entry.key)
        assert written is not None
        return Kept(id, written[0], 0), size_of(entry.key, written[0]) - size

    def _new_id(self, customer: Customer, plain: Plain) -> str:
        id = plain.get("id")
        if id is None:
            return customer.store.ids.new().lower()
        if not isinstance(id, str):
            raise RecordError("A config's id is text.", id=id)
        if id in NO_IDS:
            raise RecordError("A config can't be called so: no URL would lead to it.", id=id)
        return id


def _at(kept: Kept, revision: int) -> Kept:
    return Kept(kept.id, kept.value, revision)


async def _size(tx: Transaction, entry: Entry[Any]) -> QuotaSize:
    row = await tx.row(entry.key)
    return NOTHING if row is None else size_of(entry.key, row[0])


def _anything(revision: int) -> None:
    """No condition."""
