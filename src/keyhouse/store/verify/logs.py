"""The part of `verify` that checks logs: every event is folded, and the next one has a free
position.

An append updates the stream's state, or its sequence, in the commit that writes the event. An event
newer than the state was therefore written by another program, or the state was set back: the next
append would move `through` past it, and it would never be folded.
"""

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from keyhouse.schema import Log, LogState
from keyhouse.store.jobs.logs import fold, rows_of, streams
from keyhouse.store.store import Store
from keyhouse.store.verify.finding import Finding, confirmed
from keyhouse.store.writes.log_append import state_key_fields
from keyhouse.store.writes.transaction import Transaction

Stream = dict[str, Any]


async def check_streams(store: Store, *, repair: bool) -> AsyncIterator[Finding]:
    for log in store.schema.records:
        if not isinstance(log, Log) or (log.state is None and log.sequence is None):
            continue
        check = _check_state if log.state is not None else _check_sequence
        async for stream in _all_streams(store, log):
            finding = await confirmed(store, check, store, log, stream, repair)
            if finding is None:
                continue
            if repair and finding.kind == "unfolded":
                folded = await fold(store, log, **stream)
                finding = msgspec.structs.replace(
                    finding, detail=f"{folded} events were folded", repaired=True
                )
            yield finding


async def _all_streams(store: Store, log: Log[Any]) -> AsyncIterator[Stream]:
    """Yield the streams that have a state or sequence row, then those that have only events."""
    state = log.state if log.state is not None else log.sequence
    assert state is not None
    async for stream in streams(store, state, {}, whole=True):
        yield stream
    key = store.binding.record(state).template.build
    async for stream in streams(store, log, {}):
        if await store.row(key(stream)) is None:
            yield stream


async def _check_state(
    tx: Transaction, store: Store, log: Log[Any], stream: Stream, repair: bool
) -> Finding | None:
    assert log.state is not None
    key = tx.binding.record(log.state).template.build(stream)
    state: LogState | None = await tx.get(log.state, **stream)
    newest = await _newest(store, log, stream)
    through = "" if state is None else state.through
    if state is not None and through and not _is_position(log, through):
        if repair:
            repaired = msgspec.structs.replace(state, through="" if newest is None else str(newest))
            await tx.put(log.state, repaired, **state_key_fields(log, stream))
        return Finding(
            "wrong", key, log.name, f"`through` is {through!r:.80}, which is not an event", repair
        )
    if newest is None or str(newest) <= through:
        return None
    return Finding("unfolded", key, log.name, f"events up to {newest} are not folded")


async def _check_sequence(
    tx: Transaction, store: Store, log: Log[Any], stream: Stream, repair: bool
) -> Finding | None:
    assert log.sequence is not None
    key = tx.binding.record(log.sequence).template.build(stream)
    following: int | None = await tx.get(log.sequence, **stream)
    newest = await _newest(store, log, stream)
    if following is None or not isinstance(newest, int) or newest < following:
        return None
    if repair:
        await tx.put(log.sequence, newest + 1, **stream)
    return Finding(
        "wrong",
        key,
        log.name,
        f"is {following}, but event {newest} exists",
        repair,
    )


async def _newest(store: Store, log: Log[Any], stream: Stream) -> object:
    """Return the position of the stream's last event, or None if it has no events.

    Read after the state: every append writes the state, so an unchanged one means no append.
    """
    template = store.binding.record(log).template
    rows = await rows_of(store, template.span(stream), 1, template.split, reverse=True)
    return rows[0][1][-1] if rows else None


def _is_position(log: Log[Any], text: str) -> bool:
    try:
        log.template.segment(log.order).format(text)
    except ValueError:
        return False
    return True
