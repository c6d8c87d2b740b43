"""Fold logs, and prune them. `Transaction.append` appends to them.

Theory of operation. A stream's state has `through`, the position of the last folded event. Each
event is folded by exactly one commit: the one that moves `through` past it.

- An append folds its event. `fold` is for events that were written past the log, by an import or
  another program. Both write the state row, so a concurrent fold and append conflict.
- Pruning deletes only events that are folded.
- Every step is one commit: a run that is killed resumes where its last commit left it.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

from keyhouse.advice.arguments import checked
from keyhouse.clock import ulid_at
from keyhouse.engine import Row, Span
from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.schema import KeyValues, Log, Record
from keyhouse.store.entry import entry_of
from keyhouse.store.jobs.chunk import Chunk
from keyhouse.store.store import Store
from keyhouse.store.writes.log_append import fold_event, invalid_state, stream_values
from keyhouse.store.writes.transaction import Transaction

_CHUNK_ROWS = 50
"""Events folded or deleted in one commit, where what they write fits into it."""


@checked(UsageError)
async def fold(store: Store, log: Log[Any], /, **stream: Any) -> int:
    """Fold the events of one stream that were written past the log; return their number."""
    if log.state is None:
        raise UsageError("The log does not fold: it has no state.", log=log.name)
    folded, chunk = 0, Chunk(_CHUNK_ROWS)
    work = partial(fold_chunk, store, log, stream)
    while events := await chunk.transact(store, work):
        folded += events
    return folded


@checked(UsageError)
async def prune(
    store: Store, log: Log[Any], /, *, before: int, keep: int = 0, **fields: Any
) -> AsyncIterator[int]:
    """Delete events older than `before` (clock milliseconds), except the newest `keep` of a stream.

    Events that are not folded stay. Yields the number deleted so far. `fields` selects streams.
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
        chunk = Chunk(_CHUNK_ROWS)
        work = partial(prune_chunk, store, log, stream, cutoff, keep)
        while events := await chunk.transact(store, work):
            pruned += events
            yield pruned


async def fold_chunk(
    store: Store, log: Log[Any], stream: dict[str, Any], rows_max: int, tx: Transaction
) -> int:
    assert log.state is not None
    state = await tx.get(log.state, **stream)
    bound = tx.binding.record(log)
    span = bound.template.span(stream)
    if state is not None and state.through:
        try:
            span = span.after(
                bound.template.join((*stream_values(bound.template.fields, stream), state.through))
            )
        except KeyFieldError:
            raise invalid_state(log, state.through) from None
    rows = await rows_of(store, span, rows_max, bound.template.split)
    for row, values in rows:
        entry = entry_of(bound, row, values)
        before = state if state is not None and state.through else None
        state = (await fold_event(tx, log, stream, before, entry)).state
    return len(rows)


async def prune_chunk(
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
    await tx.rows.read([key for key, _ in old])
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
    while first := await rows_of(store, span, 1, bound.template.split):
        stream = dict(zip(names, first[0][1], strict=False))
        yield stream
        stop = bound.template.span(stream).stop
        if stop is None:
            return
        span = Span(stop, span.stop)


async def rows_of(
    store: Store, span: Span, limit: int, split: Any, *, reverse: bool = False
) -> list[tuple[Row, KeyValues]]:
    """Return up to `limit` rows that match the template, with the values of their keys."""
    matching: list[tuple[Row, KeyValues]] = []
    while len(matching) < limit:
        page = await store.engine.scan(store.space, span, limit=limit, reverse=reverse)
        matching += [(row, values) for row in page.rows if (values := split(row.key)) is not None]
        if not page.more:
            break
        span = span.before(page.rows[-1].key) if reverse else span.after(page.rows[-1].key)
    return matching[:limit]
