"""Write plans: the rows that one change of a record writes, as pure functions.

They are the record's row (`WritePlan`), the difference in the rows it owns, and its change of each
row that several records share. A Transaction buffers them for its Batch: shared rows it must read
first, so it merges their changes one by one.
"""

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

import msgspec

from keyhouse.clock import IdSource
from keyhouse.engine import Put
from keyhouse.errors import KeyFieldError, RecordError, UsageError
from keyhouse.schema import BoundDerived, BoundRecord, BoundSchema, KeyValues, Record
from keyhouse.store.entry import Entry

T = TypeVar("T")

Address = tuple[KeyValues, str]
"""The values of a key, and the key."""


class WritePlan(msgspec.Struct, Generic[T], frozen=True):
    """A put of one record, before it is known what it replaces: the bound record, the value with
    its ids and computed attributes, the values of its key, and its key.

    - `ttl`: seconds until it expires, if the record takes a TTL.
    - `document`: the parsed JSON that the value was read from. A record that keeps unknown members
      has those of the document; without it, those of the row that it replaces.
    - `is_restored`: it keeps the times that it holds, and expires at `expires`. Otherwise version,
      times and expiry are set as the record declares.
    """

    bound: BoundRecord[T]
    value: T
    key_values: KeyValues
    key: str
    ttl: float | None = None
    document: Any = None
    is_restored: bool = False
    expires: int | None = None

    def row(self, key: str, before: Entry[T] | None, now: int) -> tuple[Entry[T], Put]:
        """Return the record as stored at `now` in place of `before`, and its row at `key`."""
        bound, value = self.bound, self.value
        if self.is_restored:
            value = bound.with_version(value)
        elif bound.is_stamped:
            value = bound.stamp(value, None if before is None else before.record, now)
        if bound.timestamps is not None:
            value = bound.timestamps.normalized(value, None if before is None else before.record)
        data, value = bound.encode_and_read(value)
        if bound.keeps_unknown:
            if self.document is not None:
                data = bound.json.keep_from_document(data, self.document)
            elif before is not None and before.stored is not None:
                data = bound.json.keep_from_row(data, before.stored, before.record)
        expires = self.expires
        if not self.is_restored and (
            self.ttl is not None or (bound.expiry is not None and bound.expiry.mode != "write")
        ):
            until = before.expires if before is not None else None
            expires = bound.expires(value, until, self.ttl, now)
        if expires is not None and expires <= now:
            raise RecordError(
                "The record would have expired before it is written.", key=key, expires=expires
            )
        if bound.declared.sealed:
            data = bound.sealed_row(data, key)
        stored = data if bound.keeps_unknown else None
        return (
            Entry(value, key, self.key_values, 0, expires, bound.key_fields, stored),
            Put(key, data, expires),
        )


def put_plan(
    binding: BoundSchema,
    ids: IdSource,
    record: Record[T],
    value: T,
    fields: Mapping[str, object],
    ttl: float | None = None,
    document: Any = None,
) -> WritePlan[T]:
    """Return the plan of a put. Ids that are left out are drawn here."""
    bound = binding.record(record)
    if bound.declared.appended:
        raise appended_error(record)
    value = completed(bound, value, ids)
    values, key = bound.address(value, fields)
    return WritePlan(bound, value, values, key, ttl, document)


def append_plan(
    bound: BoundRecord[T], value: T, fields: Mapping[str, object], address: Address | None = None
) -> WritePlan[T]:
    """Return the plan of a put that a log makes: of an event, or of its state. `address` is given
    if it is known."""
    value = completed(bound, value)
    values, key = bound.address(value, fields) if address is None else address
    return WritePlan(bound, value, values, key)


def restore_plan(
    bound: BoundRecord[T], value: T, fields: Mapping[str, object], expires: int | None
) -> WritePlan[T]:
    """Return the plan of a put that leaves the record as it was."""
    value = completed(bound, value)
    values, key = bound.address(value, fields)
    return WritePlan(bound, value, values, key, is_restored=True, expires=expires)


def completed(bound: BoundRecord[T], value: T, ids: IdSource | None = None) -> T:
    """Return the value with its ids and computed attributes. Raises for one of another type."""
    if bound.json.is_struct and not isinstance(value, bound.type):
        raise bound.json.other_type(value)
    if bound.generated and ids is not None:
        value = bound.with_ids(value, ids.new)
    return bound.compute(value) if bound.declared.computed else value


class SharedRowChange(msgspec.Struct, frozen=True):
    """The change of one record in one row that it shares with others.

    `derived` is a kind of derived row with the strategy "merge". `removed` and `added` are the
    record's contributions before and after, None if it had or has none.
    `key_values` are those of the record's key, `expires` is its expiry.
    """

    bound: BoundRecord[Any]
    derived: Any
    key: str
    key_values: KeyValues
    removed: Any
    added: Any
    expires: int | None = None


def shared_changes(
    bound: BoundRecord[T], before: Entry[T] | None, after: Entry[T] | None
) -> tuple[dict[str, int], list[SharedRowChange]]:
    """Return the changes between two states of a record in rows that it shares with others: what
    is added to counts, and what must be merged."""
    expires = None if after is None else after.expires
    same_expiry = before is not None and after is not None and before.expires == expires
    counts: dict[str, int] = {}
    changes: list[SharedRowChange] = []
    for derived in (
        bound.changed_shared.between(before.record, after.record)  # type: ignore[union-attr]  # both are there
        if same_expiry
        else bound.shared_rows
    ):
        removed = {} if before is None else stored_rows(derived, before)
        added = {} if after is None else derived.rows(after.record, after.values)
        if same_expiry and removed == added:
            continue
        if derived.strategy == "add":
            for key in (*removed, *added):
                if (key in removed) is not (key in added):
                    counts[key] = counts.get(key, 0) + added.get(key, 0) - removed.get(key, 0)
        else:
            values = (after or before).values  # type: ignore[union-attr]  # one of the two is there
            for key in dict.fromkeys((*removed, *added)):
                was, now = removed.get(key), added.get(key)
                changes.append(SharedRowChange(bound, derived, key, values, was, now, expires))
    return counts, changes


def owned_changes(
    bound: BoundRecord[T], before: Entry[T] | None, after: Entry[T] | None
) -> dict[str, Put | None]:
    """Return the changes of the rows that a record owns: rows to put, None for keys to delete."""
    expires = None if after is None else after.expires
    if before is not None and after is not None and before.expires == expires:
        changes: dict[str, Put | None] = {}
        for derived in bound.changed_owned.between(before.record, after.record):
            removed, added = stored_rows(derived, before), derived.rows(after.record, after.values)
            for key in removed:
                if key not in added:
                    changes[key] = None
            for key, value in added.items():
                if removed.get(key) != value:
                    changes[key] = Put(key, value, expires)
        return changes
    added = {} if after is None else bound.owned_rows.rows(after.record, after.values)
    changes = {key: Put(key, value, expires) for key, value in added.items()}
    if before is not None:
        removed = _owned_rows_stored(bound, before)
        changes |= {key: None for key in removed if key not in added}
    return changes


def replaced_changes(
    former: BoundRecord[Any], before: Entry[Any] | None, bound: BoundRecord[T], after: Entry[T]
) -> dict[str, Put | None]:
    """Return the changes of the rows that a record owns, if it replaces one of an older
    declaration."""
    removed = {} if before is None else _owned_rows_stored(former, before)
    added = bound.owned_rows.rows(after.record, after.values)
    same_expiry = before is not None and before.expires == after.expires
    changes: dict[str, Put | None] = {key: None for key in removed if key not in added}
    for key, value in added.items():
        if not same_expiry or removed.get(key) != value:
            changes[key] = Put(key, value, after.expires)
    return changes


def _owned_rows_stored(bound: BoundRecord[Any], entry: Entry[Any]) -> dict[str, bytes]:
    try:
        return bound.owned_rows.rows(entry.record, entry.values)
    except KeyFieldError:
        return {key: row for each in bound.owned for key, row in stored_rows(each, entry).items()}


def stored_rows(derived: BoundDerived, entry: Entry[Any]) -> dict[str, Any]:
    """Return the rows that a stored record has. One whose field no key can hold, written by another
    program, has none."""
    try:
        return derived.rows(entry.record, entry.values)
    except KeyFieldError:
        return {}


def appended_error(log: Record[Any]) -> UsageError:
    return UsageError(
        "Events are written by `append`, which also folds them;"
        " use `restore` to write one again as it was.",
        log=log.name,
    )
