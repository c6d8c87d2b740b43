"""Append an event to a log within a transaction, and fold it. The theory is in `logs`."""

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from keyhouse.clock import IdSource
from keyhouse.errors import RecordError, UnreadableError, UsageError
from keyhouse.schema import FoldResult, Log
from keyhouse.store.entry import Entry
from keyhouse.store.transaction import Transaction

T = TypeVar("T")


async def append_in(
    tx: Transaction, ids: IdSource, log: Log[T], event: T, /, **fields: Any
) -> Entry[T]:
    """Append within a transaction. If any part of it fails, nothing of it is written."""
    with tx.savepoint():
        return await _append(tx, ids, log, event, fields)


async def _append(
    tx: Transaction, ids: IdSource, log: Log[T], event: T, fields: dict[str, Any]
) -> Entry[T]:
    if not isinstance(log, Log):
        raise UsageError("Only a Log can be appended to.", record=repr(log))
    stream = _stream_of(tx, log, event, fields)
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
    if log.order in log.held:
        event = msgspec.structs.replace(event, **{log.order: position})  # type: ignore[type-var]
        fields = {name: value for name, value in fields.items() if name != log.order}
    else:
        fields = {**fields, log.order: position}
    entry = await tx.put_event(log, event, **fields)
    if log.state is not None and log.deferred:
        await tx.put(
            log.state,
            state if state is not None else log.state.type(through=""),
            **state_key_fields(log, stream),
        )
    elif log.state is not None:
        await fold_event(tx, log, stream, state, entry)
    return entry


async def fold_event(
    tx: Transaction, log: Log[Any], stream: dict[str, Any], state: Any, entry: Entry[Any]
) -> Any:
    """Fold one event into the state of its stream; return the state."""
    assert log.fold is not None and log.state is not None
    found = {}
    needs = {} if log.needs is None else log.needs(entry.record)
    await tx.prefetch(tx.binding.keys(*needs.values()))
    for name, (record, fields) in needs.items():
        found[name] = await tx.get(record, **fields)
    folded: FoldResult = log.fold(state, entry.record, found)
    for record, value, fields in folded.puts:
        await tx.put(record, value, **fields)
    for counter, by, fields in folded.adds:
        await tx.add(counter, by, **fields)
    after = msgspec.structs.replace(folded.state, through=entry.values[-1])
    await tx.put(log.state, after, **state_key_fields(log, stream))
    return after


async def _new_position(
    tx: Transaction, ids: IdSource, log: Log[Any], stream: dict[str, Any], after: str | None
) -> str:
    """Return a free position: if the clock is before `through`, two sources may collide."""
    template = tx.binding.record(log).template
    try:
        position = ids.new(after=after)
    except ValueError:
        raise invalid_state(log, after) from None
    while (
        await tx.row(template.join((*stream_values(template.fields, stream), position))) is not None
    ):
        position = ids.new(after=position)
    return position


def invalid_state(log: Log[Any], through: str | None) -> UnreadableError:
    """Return the error of a state whose position is not an event."""
    return UnreadableError(
        "The `through` of a log's state is not an event; see `keyhouse verify`.",
        log=log.name,
        through=through,
    )


def _stream_of(tx: Transaction, log: Log[T], event: T, fields: dict[str, Any]) -> dict[str, Any]:
    bound = tx.binding.record(log)
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
            raise UsageError("A field of the log's key is missing.", field=name, log=log.name)
    return stream


def state_key_fields(log: Log[Any], stream: dict[str, Any]) -> dict[str, Any]:
    """Return the key fields of the state row that its value does not have."""
    assert log.state is not None
    return {name: value for name, value in stream.items() if log.state.holder(name) is None}


def stream_values(fields: Sequence[str], stream: dict[str, Any]) -> tuple[object, ...]:
    """Return the values of a stream in the order of the log's key."""
    return tuple(stream[name] for name in fields[:-1])
