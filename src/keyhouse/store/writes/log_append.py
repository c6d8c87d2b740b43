"""Append an event to a log within a transaction, and fold it. The theory is in `logs`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from keyhouse.errors import RecordError, UnreadableError, UsageError
from keyhouse.schema import BoundRecord, FoldResult, Log, Record
from keyhouse.store.entry import Entry
from keyhouse.store.writes.assumptions import assume_absent
from keyhouse.store.writes.record_view import key_values
from keyhouse.store.writes.transaction import Transaction
from keyhouse.store.writes.write_plan import Address, append_plan, put_plan

T = TypeVar("T")


async def append_folded(
    tx: Transaction, log: Log[T], event: T, found: Mapping[str, Any], /
) -> FoldResult:
    """Append as `Transaction.append` does, to a log that folds; return the effect of the event, as
    its fold returned it.

    `found` are all records that the log `needs`, by name: this transaction has read them already.
    """
    if log.state is None:
        raise UsageError("The log does not fold: it has no state.", log=log.name)
    with tx.one_write():
        folded = (await append_event(tx, log, event, {}, found))[1]
    assert folded is not None  # it has a state
    return folded


async def append_event(
    tx: Transaction,
    log: Log[T],
    event: T,
    fields: dict[str, Any],
    found: Mapping[str, Any] | None = None,
) -> tuple[Entry[T], FoldResult | None]:
    """Append an event, and fold it. If it raises, the transaction holds a part of it."""
    if not isinstance(log, Log):
        raise UsageError("Only a Log can be appended to.", record=repr(log))
    bound, order = tx.binding.record(log), log.order
    stream = _stream_of(bound, event, fields)
    state, state_at, event_at = None, None, None
    if log.state is not None:
        state_of = tx.binding.record(log.state)
        key = state_of.template.build(stream)
        keys = key_values(state_of, key, stream)
        stored = await tx.records.entry(state_of, key, keys)
        state = None if stored is None else stored.record
        state_at = (keys, key) if state_of.holds_no_key_field else None
    position: Any = fields.get(order)
    if log.sequence is not None:
        position = await tx.get(log.sequence, **stream)
        await tx.add(log.sequence, 1, **stream)
    elif position is None:
        through = None if state is None else state.through or None
        position, key = await _new_position(tx, bound, stream, through)
        if not fields:
            event_at = bound.template.normalize(key, (*stream.values(), position)), key
    elif state is not None and str(position) <= state.through:
        raise RecordError(
            "An event must be after the last folded one.", at=position, through=state.through
        )
    if log.is_order_held:
        event = msgspec.structs.replace(event, **{order: position})  # type: ignore[type-var]
        fields = {name: value for name, value in fields.items() if name != order}
    else:
        fields = {**fields, order: position}
    entry = await tx.apply(append_plan(bound, event, fields, event_at), None)
    if log.state is None:
        return entry, None
    return entry, await fold_event(tx, log, stream, state, entry, found, state_at)


async def fold_event(
    tx: Transaction,
    log: Log[Any],
    stream: dict[str, Any],
    state: Any,
    entry: Entry[Any],
    found: Mapping[str, Any] | None = None,
    state_at: Address | None = None,
) -> FoldResult:
    """Fold one event into the state of its stream; return its effect, with the state as it is put.
    If it raises, the transaction holds a part of it.

    `state_at` are the key values and the key of the state, if they are known and it holds none of
    them.
    """
    assert log.fold is not None and log.state is not None
    if found is None:
        needs = {} if log.needs is None else log.needs(entry.record)
        found = dict(zip(needs, await tx.get_each(*needs.values()), strict=True)) if needs else {}
    folded: FoldResult = log.fold(state, entry.record, found)
    for record, value, fields in folded.puts:
        await tx.apply(put_plan(tx.binding, tx.source.ids, record, value, fields))
    for counter, by, fields in folded.adds:
        await tx.add(counter, by, **fields)
    folded.state = msgspec.structs.replace(folded.state, through=entry.values[-1])
    key_fields = {} if state_at is not None else state_key_fields(log, stream)
    await tx.apply(append_plan(tx.binding.record(log.state), folded.state, key_fields, state_at))
    return folded


async def _new_position(
    tx: Transaction,
    bound: BoundRecord[Any],
    stream: dict[str, Any],
    after: str | None,
) -> tuple[str, str]:
    """Return a free position, and its key: if the clock is before `through`, two sources may
    collide.

    A first attempt takes a new position to be free, which the commit checks; only the next ones
    look.
    """
    ids, values, join = tx.source.ids, tuple(stream.values()), bound.template.join
    try:
        position = ids.new(after=after)
    except ValueError:
        raise invalid_state(bound, after) from None
    key = join((*values, position))
    if assume_absent(tx.rows, key):
        return position, key
    while await tx.row(key) is not None:
        position = ids.new(after=position)
        key = join((*values, position))
    return position, key


def invalid_state(log: BoundRecord[Any] | Record[Any], through: str | None) -> UnreadableError:
    """Return the error of a state whose position is not an event."""
    return UnreadableError(
        "The `through` of a log's state is not an event; see `keyhouse verify`.",
        log=log.name,
        through=through,
    )


def _stream_of(bound: BoundRecord[T], event: T, fields: dict[str, Any]) -> dict[str, Any]:
    if bound.json.is_struct and not isinstance(event, bound.type):
        raise bound.json.other_type(event)
    stream: dict[str, Any] = {}
    for name in bound.template.fields[:-1]:
        if name in fields:
            stream[name] = fields[name]
        elif (held := bound.declared.holder(name)) is not None:
            stream[name] = held(event)
        else:
            raise UsageError("A field of the log's key is missing.", field=name, log=bound.name)
    return stream


def state_key_fields(log: Log[Any], stream: dict[str, Any]) -> dict[str, Any]:
    """Return the key fields of the state row that its value does not have."""
    assert log.state is not None
    return {name: value for name, value in stream.items() if log.state.holder(name) is None}


def stream_values(fields: Sequence[str], stream: dict[str, Any]) -> tuple[object, ...]:
    """Return the values of a stream in the order of the log's key."""
    return tuple(stream[name] for name in fields[:-1])
