"""Append an event to a log within a transaction, and fold it. The theory is in `logs`."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from keyhouse.clock import IdSource
from keyhouse.errors import RecordError, UnreadableError, UsageError
from keyhouse.schema import FoldResult, Log, Record
from keyhouse.store.entry import ANY, Entry
from keyhouse.store.transaction import Transaction
from keyhouse.store.write_plan import appended_error

T = TypeVar("T")


async def append_in(
    tx: Transaction,
    ids: IdSource,
    log: Log[T],
    event: T,
    found: Mapping[str, Any] | None = None,
    /,
    **fields: Any,
) -> Entry[T]:
    """Append within a transaction. If any part of it fails, nothing of it is written.

    `found` are all records that the log `needs`, by name, if this transaction has read them
    already.
    """
    if not isinstance(log, Log):
        raise UsageError("Only a Log can be appended to.", record=repr(log))
    with tx.one_write():
        return await _append(tx, ids, log, event, found, fields)


async def _append(
    tx: Transaction,
    ids: IdSource,
    log: Log[T],
    event: T,
    found: Mapping[str, Any] | None,
    fields: dict[str, Any],
) -> Entry[T]:
    bound = tx.binding.record(log)
    stream = _stream_of(bound, event, fields)
    state = None if log.state is None else await tx.get(log.state, **stream)
    position: Any = fields.get(log.order)
    if log.sequence is not None:
        position = await tx.get(log.sequence, **stream)
        await tx.add(log.sequence, 1, **stream)
    elif position is None:
        position = await _new_position(
            tx, ids, log, stream, None if state is None else state.through or None
        )
    elif state is not None and str(position) <= state.through:
        raise RecordError(
            "An event must be after the last folded one.", at=position, through=state.through
        )
    if log.holder(log.order) is not None:
        event = msgspec.structs.replace(event, **{log.order: position})  # type: ignore[type-var]
        fields = {name: value for name, value in fields.items() if name != log.order}
    else:
        fields = {**fields, log.order: position}
    entry = await tx.apply_put(bound, event, None, None, fields)
    if log.state is not None and log.deferred:
        await tx.apply_put(
            tx.binding.record(log.state),
            state if state is not None else log.state.type(through=""),
            None,
            ANY,
            state_key_fields(log, stream),
        )
    elif log.state is not None:
        await fold_event(tx, log, stream, state, entry, found)
    return entry


async def fold_event(
    tx: Transaction,
    log: Log[Any],
    stream: dict[str, Any],
    state: Any,
    entry: Entry[Any],
    found: Mapping[str, Any] | None = None,
) -> Any:
    """Fold one event into the state of its stream; return the state. If it raises, the transaction
    holds a part of it."""
    assert log.fold is not None and log.state is not None
    if found is None:
        needs = {} if log.needs is None else log.needs(entry.record)
        found = dict(zip(needs, await tx.get_each(*needs.values()), strict=True)) if needs else {}
    folded: FoldResult = log.fold(state, entry.record, found)
    for record, value, fields in folded.puts:
        bound = tx.binding.record(record)
        if bound.appended:
            raise appended_error(bound)
        await tx.apply_put(bound, value, None, ANY, fields)
    for counter, by, fields in folded.adds:
        await tx.add(counter, by, **fields)
    after = msgspec.structs.replace(folded.state, through=entry.values[-1])
    key_fields = state_key_fields(log, stream)
    await tx.apply_put(tx.binding.record(log.state), after, None, ANY, key_fields)
    return after


async def _new_position(
    tx: Transaction, ids: IdSource, log: Log[Any], stream: dict[str, Any], after: str | None
) -> str:
    """Return a free position: if the clock is before `through`, two sources may collide.

    A first attempt takes a new position to be free, which the commit checks; only the next ones
    look.
    """
    template = tx.binding.record(log).template
    values = stream_values(template.fields, stream)
    try:
        position = ids.new(after=after)
    except ValueError:
        raise invalid_state(log, after) from None
    key = template.join((*values, position))
    if tx.assume_absent(key):
        return position
    while await tx.row(key) is not None:
        position = ids.new(after=position)
        key = template.join((*values, position))
    return position


def invalid_state(log: Log[Any], through: str | None) -> UnreadableError:
    """Return the error of a state whose position is not an event."""
    return UnreadableError(
        "The `through` of a log's state is not an event; see `keyhouse verify`.",
        log=log.name,
        through=through,
    )


def _stream_of(bound: Record[T], event: T, fields: dict[str, Any]) -> dict[str, Any]:
    if bound.is_struct and not isinstance(event, bound.type):
        raise bound.other_type(event)
    names = bound.template.fields[:-1]
    stream: dict[str, Any] = {}
    for name in names:
        if name in fields:
            stream[name] = fields[name]
        elif (held := bound.holder(name)) is not None:
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
