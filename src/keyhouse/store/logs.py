"""Append to logs, fold them, and prune them.

Theory of operation. A stream's state has `through`, the position of the last folded event. Each
event is folded by exactly one commit: the one that moves `through` past it.

- A log folds on append or, if `deferred`, in `fold`. Both ways an append writes the state row, so a
  concurrent fold and append conflict, and no event gets a position before `through` unfolded.
- Pruning deletes only events that are folded.
- Every step is one commit: a run that is killed resumes where its last commit left it.
"""

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from keyhouse.arguments import checked
from keyhouse.clock import IdSource, ulid_at
from keyhouse.engine import Row, Span
from keyhouse.errors import KeyFieldError, RecordError, UnreadableError, UsageError
from keyhouse.schema import FoldResult, Keys, Log, Record
from keyhouse.store.entry import Entry
from keyhouse.store.jobs import transact_chunk
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

T = TypeVar("T")

_CHUNK_ROWS = 50
"""Events folded or deleted in one commit, where what they write fits into it."""


@checked(UsageError)
async def append(store: Store, log: Log[T], event: T, /, **fields: Any) -> Entry[T]:
    """Append an event, and fold it in the same commit unless the log is `deferred`.

    The store assigns its position in the stream. An import may pass it instead, by the name of the
    key's last field (`at=…`); it must be after the last folded event.
    """
    return await store.transact(lambda tx: append_in(tx, store.ids, log, event, **fields))


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
        await _fold(tx, log, stream, state, entry)
    return entry


@checked(UsageError)
async def fold(store: Store, log: Log[Any], /, **stream: Any) -> int:
    """Fold the pending events of one stream of a deferred log, and return their number."""
    if log.state is None:
        raise UsageError("The log does not fold: it has no state.", log=log.name)
    folded = 0
    while chunk := await transact_chunk(
        store, partial(_fold_chunk, store, log, stream), _CHUNK_ROWS
    ):
        folded += chunk
    return folded


@checked(UsageError)
async def prune(
    store: Store, log: Log[Any], /, *, before: int, keep: int = 0, **fields: Any
) -> AsyncIterator[int]:
    """Delete events older than `before` (clock milliseconds), except the newest `keep` of a stream.

    Pending events are folded first. Yields the number deleted so far. `fields` selects streams.
    """
    if log.sequence is not None:
        raise UsageError(
            "A log with a sequence cannot be pruned: its events have no time.", log=log.name
        )
    if keep < 0:
        raise UsageError("`keep` must not be negative.", keep=keep)
    cutoff = ulid_at(before)
    pruned = 0
    async for stream in streams(store, log, fields):
        if log.deferred:
            await fold(store, log, **stream)
        work = partial(_prune_chunk, store, log, stream, cutoff, keep)
        while chunk := await transact_chunk(store, work, _CHUNK_ROWS):
            pruned += chunk
            yield pruned


async def _fold(
    tx: Transaction, log: Log[Any], stream: dict[str, Any], state: Any, entry: Entry[Any]
) -> Any:
    assert log.fold is not None and log.state is not None
    found = {}
    for name, (record, fields) in (
        log.needs(entry.record) if log.needs is not None else {}
    ).items():
        found[name] = await tx.get(record, **fields)
    folded: FoldResult = log.fold(state, entry.record, found)
    for record, value, fields in folded.puts:
        await tx.put(record, value, **fields)
    for counter, by, fields in folded.adds:
        await tx.add(counter, by, **fields)
    after = msgspec.structs.replace(folded.state, through=entry.values[-1])
    await tx.put(log.state, after, **state_key_fields(log, stream))
    return after


async def _fold_chunk(
    store: Store, log: Log[Any], stream: dict[str, Any], rows_max: int, tx: Transaction
) -> int:
    assert log.state is not None
    state = await tx.get(log.state, **stream)
    bound = tx.binding.record(log)
    span = bound.template.span(stream)
    if state is not None and state.through:
        try:
            span = span.after(
                bound.template.join((*_ordered(bound.template.fields, stream), state.through))
            )
        except KeyFieldError:
            raise _invalid_state(log, state.through) from None
    rows = await rows_of(store, span, rows_max, bound.template.split)
    for row, values in rows:
        value, names = bound.decode(row.value, row.key), bound.template.fields
        entry = Entry(value, row.key, values, row.revision, row.expires, names)
        state = await _fold(
            tx, log, stream, state if state is not None and state.through else None, entry
        )
    return len(rows)


async def _prune_chunk(
    store: Store,
    log: Log[Any],
    stream: dict[str, Any],
    cutoff: str,
    keep: int,
    rows_max: int,
    tx: Transaction,
) -> int:
    state = None if log.state is None else await tx.get(log.state, **stream)
    bound = tx.binding.record(log)
    folded = cutoff if log.state is None else "" if state is None else str(state.through) + "\0"
    span = bound.template.span(stream)
    if keep:
        newest = await rows_of(store, span, keep, bound.template.split, reverse=True)
        if len(newest) < keep:
            return 0
        span = span.before(newest[-1][0].key)
    rows = await rows_of(store, span, rows_max, bound.template.split)
    old = [(row.key, values) for row, values in rows if str(values[-1]) < min(cutoff, folded)]
    await tx.prefetch([key for key, _ in old])
    for _, values in old:
        named: dict[str, Any] = dict(zip(bound.template.fields, values, strict=True))
        await tx.delete(log, **named)
    return len(old)


async def streams(
    store: Store, record: Record[Any], fields: dict[str, Any], *, whole: bool = False
) -> AsyncIterator[dict[str, Any]]:
    """Yield each stream that has an event, skipping from one stream to the next.

    With `whole`, the record is the stream's state or sequence: its key has only the stream's
    fields.
    """
    bound = store.binding.record(record)
    names = bound.template.fields if whole else bound.template.fields[:-1]
    span = bound.template.span(fields)
    while found := await rows_of(store, span, 1, bound.template.split):
        stream = dict(zip(names, found[0][1], strict=False))
        yield stream
        stop = bound.template.span(stream).stop
        if stop is None:
            return
        span = Span(stop, span.stop)


async def rows_of(
    store: Store, span: Span, limit: int, split: Any, *, reverse: bool = False
) -> list[tuple[Row, Keys]]:
    """Return up to `limit` rows that match the template, with the values of their keys."""
    found: list[tuple[Row, Keys]] = []
    while len(found) < limit:
        page = await store.engine.scan(store.space, span, limit=limit, reverse=reverse)
        found += [(row, values) for row in page.rows if (values := split(row.key)) is not None]
        if not page.more:
            break
        span = span.before(page.rows[-1].key) if reverse else span.after(page.rows[-1].key)
    return found[:limit]


async def _new_position(
    tx: Transaction, ids: IdSource, log: Log[Any], stream: dict[str, Any], after: str | None
) -> str:
    """Return a free position: if the clock is before `through`, two sources may collide."""
    template = tx.binding.record(log).template
    try:
        position = ids.new(after=after)
    except ValueError:
        raise _invalid_state(log, after) from None
    while await tx.row(template.join((*_ordered(template.fields, stream), position))) is not None:
        position = ids.new(after=position)
    return position


def _invalid_state(log: Log[Any], through: str | None) -> UnreadableError:
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


def _ordered(fields: Sequence[str], stream: dict[str, Any]) -> tuple[object, ...]:
    return tuple(stream[name] for name in fields[:-1])
