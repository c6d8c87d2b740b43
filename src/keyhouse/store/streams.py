"""The streams of logs, as `verify` looks at them: has every event been folded, and does the next one have a free place?

Appending moves a stream's state, or its sequence, in the commit that writes the event. So an event that the state does not
know of was written past the log, or the state was set back: the next append would move `through` past it, and it would
never count. Where a log is `deferred`, events that wait are in order.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec

from keyhouse.schema import Log, LogState
from keyhouse.store.finding import Finding, confirmed
from keyhouse.store.logs import beside, fold, rows_of, streams
from keyhouse.store.store import Store
from keyhouse.store.transaction import Transaction

Stream = dict[str, Any]


async def check_streams(store: Store, *, repair: bool) -> AsyncIterator[Finding]:
    for log in store.schema.records:
        if not isinstance(log, Log) or (log.state is None and log.sequence is None):
            continue
        check = _check_state if log.state is not None else _check_sequence
        async for stream in _all_streams(store, log):
            finding = await confirmed(store, partial(check, store, log, stream, repair))
            if finding is None:
                continue
            if repair and finding.kind == "unfolded" and not log.deferred:
                folded = await fold(store, log, **stream)
                finding = msgspec.structs.replace(
                    finding, detail=f"{folded} of them were folded now", repaired=True
                )
            yield finding


async def _all_streams(store: Store, log: Log[Any]) -> AsyncIterator[Stream]:
    """Those that have a state, and those that have an event and none."""
    known = log.state if log.state is not None else log.sequence
    assert known is not None
    async for stream in streams(store, known, {}, whole=True):
        yield stream
    key = store.binding.record(known).template.build
    async for stream in streams(store, log, {}):
        if await store.row(key(stream)) is None:
            yield stream


async def _check_state(
    store: Store, log: Log[Any], stream: Stream, repair: bool, tx: Transaction
) -> Finding | None:
    assert log.state is not None
    key = tx.binding.record(log.state).template.build(stream)
    state: LogState | None = await tx.get(log.state, **stream)
    newest = await _newest(store, log, stream)
    through = "" if state is None else state.through
    if state is not None and through and not _is_place(log, through):
        if log.deferred and newest is not None:
            detail = (
                "`through` names no event: put the state anew with the last one that was folded"
            )
            return Finding("unfolded", key, log.name, detail)
        if repair:
            repaired = msgspec.structs.replace(state, through="" if newest is None else str(newest))
            await tx.put(log.state, repaired, **beside(log, stream))
        return Finding(
            "wrong", key, log.name, f"`through` is {through!r:.80}, which names no event", repair
        )
    if newest is None or log.deferred or str(newest) <= through:
        return None
    return Finding("unfolded", key, log.name, f"events up to {newest} came past it")


async def _check_sequence(
    store: Store, log: Log[Any], stream: Stream, repair: bool, tx: Transaction
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
        f"says {following}, where there is an event {newest} already",
        repair,
    )


async def _newest(store: Store, log: Log[Any], stream: Stream) -> object:
    """The place of the stream's last event; `None`: it has none. Read after the state, which every append writes: a state
    that stays as it was has seen no append since."""
    template = store.binding.record(log).template
    found = await rows_of(store, template.span(stream), 1, template.split, reverse=True)
    return found[0][1][-1] if found else None


def _is_place(log: Log[Any], text: str) -> bool:
    try:
        log.template.segment(log.order).format(text)
    except ValueError:
        return False
    return True
