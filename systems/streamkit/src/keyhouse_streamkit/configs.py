"""Operations on configs: create, read, list, replace, delete, one at a time or in a batch. Knows no
HTTP.

The server sets a config's times and owner, and never takes them from the caller.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import msgspec

from keyhouse.engine import Row
from keyhouse.errors import (
    ConflictError,
    KeyFieldError,
    LimitError,
    NotFoundError,
    RecordError,
    RevisionError,
    UsageError,
)
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import MILLISECONDS, Record
from keyhouse.store import Entry, Transaction, decode_cursor, encode_cursor, invalid_cursor
from keyhouse_streamkit.limits import (
    BATCH_OPERATIONS_MAX,
    LIST_BYTES_MAX,
    READABLE_ROWS_MAX,
)
from keyhouse_streamkit.schema import CONFIGS, NO_IDS
from keyhouse_streamkit.tenants import Customer

FORCED: Final = frozenset({"id", "createdAt", "updatedAt", "customer", "customerId"})
"""Members that a caller cannot set: what is sent under these names is ignored."""

Plain = Mapping[str, Any]
Precondition = Callable[[int], None]
"""Takes the revision of the config about to be replaced or deleted, and raises to prevent it."""

_CURSOR_VERSION: Final = b"\x01"


class StoredConfig(msgspec.Struct, frozen=True):
    """A config's JSON and its revision."""

    id: str
    value: bytes
    revision: int


class ConfigPage(msgspec.Struct, frozen=True):
    """Ids with their configs' JSON, or None if only ids were requested. `cursor` leads to the next
    page."""

    configs: list[tuple[str, bytes | None]]
    cursor: str | None = None


class Create(msgspec.Struct, frozen=True, tag_field="op", tag="create", forbid_unknown_fields=True):
    """Create a config. Without an `id` in it, the server generates one."""

    config: dict[str, Any]


class Update(
    msgspec.Struct,
    frozen=True,
    tag_field="op",
    tag="update",
    forbid_unknown_fields=True,
    rename="camel",
):
    """Replace a config; `ifMatch`: only if its ETag is this one."""

    id: str
    config: dict[str, Any]
    if_match: str | None = None


class Delete(msgspec.Struct, frozen=True, tag_field="op", tag="delete", forbid_unknown_fields=True):
    """Delete a config, if it exists."""

    id: str


Operation = Create | Update | Delete


class OperationResult(msgspec.Struct, frozen=True):
    """The result of one operation of a batch: the config stored, or whether one was deleted."""

    op: str
    id: str
    value: bytes | None = None
    deleted: bool = False


class _Times(msgspec.Struct, rename="camel"):
    updated_at: str


_decode_times = msgspec.json.Decoder(_Times).decode

# Reading


async def read(customer: Customer, category: str, id: str) -> Row:
    """Return the stored row: its value is the config's JSON. Raises UnreadableError if another
    program has written something else there."""
    record, readable = CONFIGS[category], customer.readable
    try:
        row = await customer.store.record_row(record, id=id)
    except KeyFieldError:
        row = None  # an invalid id has no config
    if row is None:
        raise NotFoundError("No such config.", type=category, id=id)
    if readable.get(row.key) != row.revision:  # decoding takes longer than all other steps
        record.json.decode(row.value, row.key)
        if len(readable) >= READABLE_ROWS_MAX:
            readable.clear()
        readable[row.key] = row.revision
    return row


async def list_configs(
    customer: Customer,
    category: str,
    *,
    limit: int = PAGE_ROWS_MAX,
    cursor: str | None = None,
    since: str | None = None,
    ids_only: bool = False,
) -> ConfigPage:
    """Return up to `limit` configs or 8 MiB in the order of their ids; `since`: those updated at
    that time or later.

    There is no index by time: `since` reads one category, some hundreds of rows, and only their
    `updatedAt`. A row that is not a config, because another program wrote it, is left out.
    """
    if not 1 <= limit <= PAGE_ROWS_MAX:
        raise UsageError("A page has 1 to 10,000 configs.", limit=limit, most=PAGE_ROWS_MAX)
    record = CONFIGS[category]
    moment = None if since is None else MILLISECONDS.format(MILLISECONDS.parse(since))
    after = None if cursor is None else (_decode_cursor(record, customer.name, cursor),)
    keys_only = ids_only and moment is None
    configs: list[tuple[str, bytes | None]] = []
    size = 0
    rows = customer.store.record_rows(record, after=after, keys_only=keys_only)
    async with aclosing(rows):
        async for (*_, id), row in rows:
            if not keys_only:
                updated = _updated_at(row)
                if updated is None or (moment is not None and updated < moment):
                    continue
            if len(configs) == limit or (configs and size + len(row.value) > LIST_BYTES_MAX):
                return ConfigPage(configs, _encode_cursor(configs[-1][0]))
            configs.append((str(id), None if ids_only else row.value))
            size += 0 if ids_only else len(row.value)
    return ConfigPage(configs)


# Writing


async def create(customer: Customer, category: str, plain: Plain) -> StoredConfig:
    record, id = CONFIGS[category], _new_id(customer, plain)
    stored, revision = await customer.transact(lambda tx: _create(tx, record, id, plain))
    return StoredConfig(id, stored, revision)


async def replace(
    customer: Customer, category: str, id: str, plain: Plain, check: Precondition
) -> StoredConfig:
    record = CONFIGS[category]
    stored, revision = await customer.transact(lambda tx: _replace(tx, record, id, plain, check))
    return StoredConfig(id, stored, revision)


async def delete(customer: Customer, category: str, id: str, check: Precondition) -> bool:
    """Delete a config and return whether it existed."""
    record = CONFIGS[category]
    try:
        return (await customer.transact(lambda tx: _delete(tx, record, id, check)))[0]
    except KeyFieldError:
        return False  # an invalid id has no config


async def apply_batch(
    customer: Customer, category: str, operations: list[Operation], etag: Callable[[int], str]
) -> list[OperationResult]:
    """Apply all operations in one commit, or none; an error names the operation that failed."""
    if len(operations) > BATCH_OPERATIONS_MAX:
        raise LimitError(
            "Too many operations in a batch: send several batches.",
            operations=len(operations),
            limit=BATCH_OPERATIONS_MAX,
        )
    record = CONFIGS[category]
    ids = [
        _new_id(customer, each.config) if isinstance(each, Create) else each.id
        for each in operations
    ]
    if len(set(ids)) != len(ids):
        duplicate = next(id for id in ids if ids.count(id) > 1)
        raise RecordError("A batch names a config twice.", id=duplicate)

    async def work(tx: Transaction) -> list[OperationResult]:
        results = []
        for number, (operation, id) in enumerate(zip(operations, ids, strict=True)):
            try:
                results.append(await _apply(tx, record, operation, id, etag))
            except (ConflictError, NotFoundError, RecordError, KeyFieldError) as error:
                error.fields["operation"] = number
                raise
        return results

    return (await customer.transact(work))[0]


async def _apply(
    tx: Transaction,
    record: Record[Any],
    operation: Operation,
    id: str,
    etag: Callable[[int], str],
) -> OperationResult:
    if isinstance(operation, Delete):
        return OperationResult("delete", id, deleted=await _delete(tx, record, id, _unconditional))
    if isinstance(operation, Create):
        return OperationResult("create", id, await _create(tx, record, id, operation.config))
    expected = operation.if_match

    def check(revision: int) -> None:
        if expected is not None and expected not in ("*", etag(revision)):
            raise RevisionError(
                "The config has another ETag than ifMatch: read it again.", now=etag(revision)
            )

    return OperationResult("update", id, await _replace(tx, record, id, operation.config, check))


async def _create(tx: Transaction, record: Record[Any], id: str, plain: Plain) -> bytes:
    if await tx.entry(record, id=id) is not None:
        raise ConflictError("A config of this id exists: replace it, or use another id.", id=id)
    return await _put(tx, record, id, plain, None)


async def _replace(
    tx: Transaction, record: Record[Any], id: str, plain: Plain, check: Precondition
) -> bytes:
    try:
        before = await tx.entry(record, id=id)
    except KeyFieldError:
        before = None  # an invalid id has no config
    if before is None:
        raise NotFoundError("No such config.", type=record.name, id=id)
    check(before.revision)
    return await _put(tx, record, id, plain, before)


async def _delete(tx: Transaction, record: Record[Any], id: str, check: Precondition) -> bool:
    before = await tx.entry(record, id=id)
    if before is None:
        return False
    check(before.revision)
    return await tx.delete(record, id=id)


async def _put(
    tx: Transaction, record: Record[Any], id: str, plain: Plain, before: Entry[Any] | None
) -> bytes:
    now = MILLISECONDS.format(tx.now)
    created, updated = now, now
    if before is not None:
        created, updated = before.record.created_at, max(now, before.record.updated_at)
    members = {name: value for name, value in plain.items() if name not in FORCED}
    value = record.json.accepted({"id": id, **members, "createdAt": created, "updatedAt": updated})
    entry = await tx.restore(record, value)
    row = await tx.row(entry.key)
    assert row is not None
    return row[0]


def _new_id(customer: Customer, plain: Plain) -> str:
    id = plain.get("id")
    if id is None:
        return customer.store.ids.new().lower()
    if not isinstance(id, str):
        raise RecordError("A config's id must be text.", id=id)
    if id in NO_IDS:
        raise RecordError("Invalid id: no URL could address the config.", id=id)
    return id


def _unconditional(revision: int) -> None:
    """Allow every revision."""


def _updated_at(row: Row) -> str | None:
    """Return the time of a stored config; None if the row is not one."""
    try:
        return _decode_times(row.value).updated_at
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _encode_cursor(id: str) -> str:
    return encode_cursor(_CURSOR_VERSION + id.encode())


def _decode_cursor(record: Record[Any], customer: str, cursor: str) -> str:
    """Return the id after which the page starts. A forged cursor starts among the customer's own
    configs."""
    data = decode_cursor(cursor)
    if not data.startswith(_CURSOR_VERSION):
        raise invalid_cursor(cursor)
    try:
        id = data.removeprefix(_CURSOR_VERSION).decode()
        record.template.join((customer, id))
    except (UnicodeDecodeError, KeyFieldError):
        raise invalid_cursor(cursor) from None
    return id
