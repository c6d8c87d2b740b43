"""How a value that a person gives becomes a record. There is no way past the record's type, nor to a derived row."""

from typing import Any

import msgspec

from keyhouse import Store
from keyhouse.cli.place import Place
from keyhouse.errors import DocumentError, UsageError
from keyhouse.schema import MILLISECONDS, KeyMatch, Log, Record
from keyhouse.schema.description import kind_of, member_name
from keyhouse.schema.explanation import explain
from keyhouse.store import ANY, Entry, Unset, version


class Put(msgspec.Struct, frozen=True):
    """What was written. What a service does not tell of it is absent."""

    space: str
    key: str
    record: str
    revision: int | msgspec.UnsetType
    expires: str | msgspec.UnsetType | None
    value: Any
    derived: list[dict[str, str]]


async def put_value(
    place: Place,
    store: Store,
    found: KeyMatch,
    key: str,
    content: bytes,
    ttl: int | None,
    expect: int | Unset | None,
) -> Put:
    check_writable(place, found, key)
    await refuse_newer(store)
    if isinstance(found.declared, Log):
        raise UsageError(
            "The events of a log are appended by its system, which folds them too.",
            log=found.record.name,
        )
    record: Record[Any] = found.record
    bound = store.find(key)
    assert bound is not None, "the place was chosen by this key"
    before: Entry[Any] | None = None
    if record.private:  # which must not be lost by writing what `get` has shown
        before = await store.entry(record, **bound.fields)
        expect = (None if before is None else before.revision) if expect is ANY else expect
    value = record.parse(completed(record, found, before, content))
    entry = await store.put(record, value, ttl=ttl, expect=expect, **bound.fields)
    rows = [
        {"kind": kind_of(derived), "key": row}
        for derived in bound.record.derived
        for row in derived.rows(entry.record, entry.values)
    ]
    expires = None if entry.expires is None else MILLISECONDS.format(entry.expires)
    return Put(
        place.space, key, record.name, entry.revision, expires, record.shown(entry.record), rows
    )


def check_writable(place: Place, found: KeyMatch, key: str) -> None:
    """Refuse what follows from something else, and what the store keeps for itself."""
    if not isinstance(found.declared, Record):
        explained = explain(place.schema, key)
        raise UsageError(
            "A derived row follows from its record: write or delete that.",
            key=key,
            kind=kind_of(found.declared),
            record=None if explained is None else explained.record_key,
        )
    if place.schema.meta is not None and found.record in place.schema.meta.records:
        raise UsageError("The store keeps this row itself: see `keyhouse migrate`.", key=key)


async def refuse_newer(store: Store) -> None:
    """NewerError where newer code has migrated the space: what this code writes would be of the old shape."""
    if store.schema.meta is not None:
        await version(store)


def completed(
    record: Record[Any], found: KeyMatch, before: Entry[Any] | None, content: bytes
) -> bytes:
    """The document with the members that others know: the key, the store, and the record that is there."""
    try:
        plain = msgspec.json.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError(
            "The value is not JSON; to store a text as it stands, add --text.", reason=str(error)
        ) from None
    if not isinstance(plain, dict) or not record.is_struct:
        return content
    known: dict[str, Any] = {}
    for name, value in found.fields.items():
        source = record.fields.get(name, name)
        if isinstance(source, str) and "." not in source and hasattr(record.type, source):
            known[source] = value
    known |= {
        name: record.times.format(0)
        for name in (record.created, record.updated)
        if name is not None
    }
    known |= {} if record.version is None else {record.version[0]: record.version[1]}
    known |= (
        {} if before is None else {name: getattr(before.record, name) for name in record.private}
    )
    missing = {member_name(record.type, name): value for name, value in known.items()}
    missing = {name: value for name, value in missing.items() if name not in plain}
    return msgspec.json.encode(plain | missing) if missing else content
