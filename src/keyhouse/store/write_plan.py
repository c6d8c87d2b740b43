"""Write plans: the rows that one change of a record writes, as pure functions.

They are the record's row and the difference in the rows it owns. A Transaction buffers them for its
Batch. Rows that several records share must be read first, so they are the transaction's work.
"""

from collections.abc import Iterable
from typing import Any, TypeVar

from keyhouse.engine import Put
from keyhouse.errors import KeyFieldError, RecordError, UsageError
from keyhouse.schema import Derived, Keys, Record
from keyhouse.store.entry import Entry

T = TypeVar("T")


def stamped(
    bound: Record[T],
    value: T,
    keys: Keys,
    key: str,
    before: Entry[T] | None,
    ttl: float | None,
    now: int,
    restored: tuple[int | None] | None = None,
    replaced: bytes | None = None,
    document: Any = None,
) -> tuple[Entry[T], Put]:
    """Return the record as stored at `now` in place of `before`, and its row.

    `replaced` is the JSON in whose place it is stored, and `document` the parsed JSON that the
    value was read from: a record that keeps unknown members has those of one of the two.
    `restored` holds the expiry of a record that keeps its times; None: version, times and expiry
    are set.
    """
    if restored is None:
        if bound.is_stamped:
            value = bound.stamp(value, None if before is None else before.record, now)
    else:
        value = bound.versioned(value)
    if bound.timestamps is not None:
        value = bound.timestamps.normalized(value, None if before is None else before.record)
    data, value = bound.written(value)
    if bound.keeps_unknown:
        if document is not None:
            data = bound.keep_from_document(data, document)
        elif replaced is not None and before is not None:
            data = bound.keep_from_row(data, replaced, before.record)
    if restored is not None:
        expires = restored[0]
    elif ttl is None and (bound.expiry is None or bound.expiry.mode == "write"):
        expires = None
    else:
        until = before.expires if before is not None else None
        expires = bound.expires(value, until, ttl, now)
    if expires is not None and expires <= now:
        raise RecordError(
            "The record would have expired before it is written.", key=key, expires=expires
        )
    if bound.sealed:
        data = bound.sealed_row(data, key)
    stored = data if bound.keeps_unknown else None
    return (
        Entry(value, key, keys, 0, expires, bound.template.fields, stored),
        Put(key, data, expires),
    )


def owned_changes(
    bound: Record[T], before: Entry[T] | None, after: Entry[T] | None
) -> dict[str, Put | None]:
    """Return the changes of the rows that a record owns: rows to put, None for keys to delete."""
    expires = None if after is None else after.expires
    if before is not None and after is not None and before.expires == expires:
        return _changes_of(bound.changed_owned(before.record, after.record), before, after)
    added = {} if after is None else bound.owned_rows.rows(after.record, after.values)
    changes: dict[str, Put | None] = {key: Put(key, value, expires) for key, value in added.items()}
    if before is not None:
        removed = _owned_rows_stored(bound, before)
        changes |= {key: None for key in removed if key not in added}
    return changes


def replaced_changes(
    former: Record[Any], before: Entry[Any] | None, bound: Record[T], after: Entry[T]
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


def _changes_of(
    changed: Iterable[Derived], before: Entry[Any], after: Entry[Any]
) -> dict[str, Put | None]:
    """Return what changes in rows of these kinds, if the record's expiry stays."""
    changes: dict[str, Put | None] = {}
    for derived in changed:
        removed = stored_rows(derived, before)
        added = derived.rows(after.record, after.values)
        for key in removed:
            if key not in added:
                changes[key] = None
        for key, value in added.items():
            if removed.get(key) != value:
                changes[key] = Put(key, value, after.expires)
    return changes


def _owned_rows_stored(bound: Record[Any], entry: Entry[Any]) -> dict[str, bytes]:
    try:
        return bound.owned_rows.rows(entry.record, entry.values)
    except KeyFieldError:
        return {key: row for each in bound.owned for key, row in stored_rows(each, entry).items()}


def stored_rows(derived: Derived, entry: Entry[Any]) -> dict[str, Any]:
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
