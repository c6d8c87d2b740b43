"""What one change of a record writes: the record's own row, and the rows derived from it that are its alone. What others
share with it takes a transaction.

Here, and in a transaction, a record's change becomes a Batch: nowhere else."""

from typing import Any, TypeVar

from keyhouse.engine import Batch, Check, Put
from keyhouse.errors import KeyFieldError, RecordError
from keyhouse.schema import Derived, Keys, Record
from keyhouse.store.entry import Entry

T = TypeVar("T")


def changed(
    bound: Record[T],
    value: T,
    keys: Keys,
    key: str,
    before: Entry[T] | None,
    ttl: int | None,
    now: int,
) -> tuple[Entry[T], Batch]:
    """A record that is `single`, as it is stored over the one `before`, and the commit that does it: what a transaction
    would do, without its bookkeeping."""
    after, put = settled(bound, value, keys, key, before, ttl, now)
    if bound.is_single_row:
        return after, Batch((), (put,), ())
    puts, deletes = [put], []
    for at, own in own_rows(bound, before, after).items():
        if own is not None:
            puts.append(own)
        else:
            deletes.append(at)
    check = Check(key, None if before is None else before.revision)
    return after, Batch((check,), tuple(puts), tuple(deletes))


def keyed(bound: Record[T], value: T, fields: dict[str, Any]) -> tuple[T, Keys, str]:
    """The value with what is computed, and where it goes."""
    if bound.is_struct and not isinstance(value, bound.type):
        raise bound.other_type(value)
    if bound.computed:
        value = bound.compute(value)
    keys = bound.keys(value, fields)
    key = bound.template.join(keys)
    return value, bound.template.as_read(key, keys), key


def settled(
    bound: Record[T],
    value: T,
    keys: Keys,
    key: str,
    before: Entry[T] | None,
    ttl: int | None,
    now: int,
    kept: tuple[int | None] | None = None,
) -> tuple[Entry[T], Put]:
    """The record as it is stored at `now` over the one `before`, and its row. `kept`: when it expires, if that and its times
    are settled."""
    if kept is None:
        earlier = before.record if before is not None else None
        value = bound.stamp(value, earlier, now)
    else:
        value = bound.versioned(value)
    data, value = bound.written(value)
    until = before.expires if before is not None else None
    expires = bound.expires(value, until, ttl, now) if kept is None else kept[0]
    if expires is not None and expires <= now:
        raise RecordError(
            "The record would have expired before it is written.", key=key, expires=expires
        )
    return Entry(value, key, keys, 0, expires), Put(key, data, expires)


def own_rows(
    bound: Record[T], before: Entry[T] | None, after: Entry[T] | None
) -> dict[str, Put | None]:
    """The difference between two states of one record in the rows that are its alone: what to put; `None` for what goes."""
    added = {} if after is None else bound.owned_rows.rows(after.record, after.values)
    expires = None if after is None else after.expires
    if before is None:
        return {key: Put(key, value, expires) for key, value in added.items()}
    removed = _own_rows_stored(bound, before)
    kept = after is not None and before.expires == expires
    changes: dict[str, Put | None] = {key: None for key in removed if key not in added}
    for key, value in added.items():
        if not kept or removed.get(key) != value:
            changes[key] = Put(key, value, expires)
    return changes


def _own_rows_stored(bound: Record[Any], entry: Entry[Any]) -> dict[str, bytes]:
    try:
        return bound.owned_rows.rows(entry.record, entry.values)
    except KeyFieldError:
        return {
            key: value
            for each in bound.owned_rows.derived
            for key, value in stored_rows(each, entry).items()
        }


def stored_rows(derived: Derived, entry: Entry[Any]) -> dict[str, Any]:
    """What a stored record earns. One that another program wrote, with a field that no key can hold, has no such row."""
    try:
        return derived.rows(entry.record, entry.values)
    except KeyFieldError:
        return {}
