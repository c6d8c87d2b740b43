"""Logs at work: append, fold, prune. An event is folded by exactly one commit: the one that moves `through` past it.

A log folds as it is appended to or, when `deferred`, by `fold`. Either way appending writes the stream's state row, so that
folding and appending at the same moment can't both win: no event ever lands behind `through` unseen. What is pruned has
been folded first. A run that is killed anywhere goes on where its last commit left it.
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
    """Append an event, and fold it in the same commit unless the log is `deferred`. Its place in the stream is drawn by the
    store; an import may give it (`at=…`, by the name of the key's last field), behind all that was folded."""
    return await store.transact(lambda tx: append_in(tx, store.ids, log, event, **fields))


async def append_in(
    tx: Transaction, ids: IdSource, log: Log[T], event: T, /, **fields: Any
) -> Entry[T]:
    """The same within a transaction: the event and all that it does, or, when something of it is refused, nothing."""
    with tx.whole():
        return await _append(tx, ids, log, event, fields)


async def _append(
    tx: Transaction, ids: IdSource, log: Log[T], event: T, fields: dict[str, Any]
) -> Entry[T]:
    if not isinstance(log, Log):
        raise UsageError("Only a Log can be appended to.", record=repr(log))
    stream = _stream_of(tx, log, event, fields)
    state = None if log.state is None else await tx.get(log.state, **stream)
    place: Any = fields.get(log.order)
    if log.sequence is not None:
        place = await tx.get(log.sequence, **stream)
        tx.add(log.sequence, 1, **stream)
    elif place is None:
        place = await _new_place(
            tx, ids, log, stream, None if state is None else state.through or None
        )
    elif state is not None and str(place) <= state.through:
        raise RecordError(
            "An event can't be put before those already folded.", at=place, through=state.through
        )
    if log.order in log.held:
        event = msgspec.structs.replace(event, **{log.order: place})  # type: ignore[type-var]
        fields = {name: value for name, value in fields.items() if name != log.order}
    else:
        fields = {**fields, log.order: place}
    entry = await tx.put_event(log, event, **fields)
    if log.state is not None and log.deferred:
        await tx.put(
            log.state,
            state if state is not None else log.state.type(through=""),
            **beside(log, stream),
        )
    elif log.state is not None:
        await _fold(tx, log, stream, state, entry)
    return entry


@checked(UsageError)
async def fold(store: Store, log: Log[Any], /, **stream: Any) -> int:
    """Fold what a deferred log has pending in one stream; how many events."""
    if log.state is None:
        raise UsageError("The log is not declared to fold: it has no state.", log=log.name)
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
    """Delete the events that are older than `before` (clock milliseconds) but for the newest `keep` of each stream, after
    folding them. Yields how many are gone so far. `fields` narrows it to some streams."""
    if log.sequence is not None:
        raise UsageError(
            "Events of a log that counts its sequence have no time to be pruned by.", log=log.name
        )
    if keep < 0:
        raise UsageError("Pruning keeps a number of events, or none.", keep=keep)
    cutoff = ulid_at(before)
    gone = 0
    async for stream in streams(store, log, fields):
        if log.deferred:
            await fold(store, log, **stream)
        work = partial(_prune_chunk, store, log, stream, cutoff, keep)
        while chunk := await transact_chunk(store, work, _CHUNK_ROWS):
            gone += chunk
            yield gone


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
        tx.add(counter, by, **fields)
    after = msgspec.structs.replace(folded.state, through=entry.values[-1])
    await tx.put(log.state, after, **beside(log, stream))
    return after


async def _fold_chunk(
    store: Store, log: Log[Any], stream: dict[str, Any], most: int, tx: Transaction
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
            raise _astray(log, state.through) from None
    rows = await rows_of(store, span, most, bound.template.split)
    for row, values in rows:
        entry = Entry(bound.decode(row.value, row.key), row.key, values, row.revision, row.expires)
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
    most: int,
    tx: Transaction,
) -> int:
    state = None if log.state is None else await tx.get(log.state, **stream)
    bound = tx.binding.record(log)
    folded = cutoff if log.state is None else "" if state is None else str(state.through) + "\0"
    span = bound.template.span(stream)
    if keep:
        kept = await rows_of(store, span, keep, bound.template.split, reverse=True)
        if len(kept) < keep:
            return 0
        span = span.before(kept[-1][0].key)
    rows = await rows_of(store, span, most, bound.template.split)
    gone = [(row.key, values) for row, values in rows if str(values[-1]) < min(cutoff, folded)]
    await tx.prefetch([key for key, _ in gone])
    for _, values in gone:
        named: dict[str, Any] = dict(zip(bound.template.fields, values, strict=True))
        await tx.delete(log, **named)
    return len(gone)


async def streams(
    store: Store, record: Record[Any], fields: dict[str, Any], *, whole: bool = False
) -> AsyncIterator[dict[str, Any]]:
    """Each stream that has an event, found by jumping from one to the next; `whole`: that has a row of this record, whose
    key has the stream's fields and no more."""
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
    """Up to `limit` rows of the log's own shape."""
    found: list[tuple[Row, Keys]] = []
    while len(found) < limit:
        page = await store.engine.scan(store.space, span, limit=limit, reverse=reverse)
        found += [(row, values) for row in page.rows if (values := split(row.key)) is not None]
        if not page.more:
            break
        span = span.before(page.rows[-1].key) if reverse else span.after(page.rows[-1].key)
    return found[:limit]


async def _new_place(
    tx: Transaction, ids: IdSource, log: Log[Any], stream: dict[str, Any], after: str | None
) -> str:
    """A place that no event has. Where the clock is behind `through`, two sources draw the same: the next one after it."""
    template = tx.binding.record(log).template
    try:
        place = ids.new(after=after)
    except ValueError:
        raise _astray(log, after) from None
    while await tx.row(template.join((*_ordered(template.fields, stream), place))) is not None:
        place = ids.new(after=place)
    return place


def _astray(log: Log[Any], through: str | None) -> UnreadableError:
    return UnreadableError(
        "A log's state does not name its last event; see `keyhouse verify`.",
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
            raise UsageError(
                "The log's key needs a field that was not given.", field=name, log=log.name
            )
    return stream


def beside(log: Log[Any], stream: dict[str, Any]) -> dict[str, Any]:
    """The key fields of the state's row that its value does not hold."""
    assert log.state is not None
    return {name: value for name, value in stream.items() if log.state.holder(name) is None}


def _ordered(fields: Sequence[str], stream: dict[str, Any]) -> tuple[object, ...]:
    return tuple(stream[name] for name in fields[:-1])
