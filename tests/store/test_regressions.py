"""Regression tests of bugs that other tests found, each as the shortest call that shows it."""

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import CursorError, KeyFieldError, LimitError, RecordError, UsageError
from keyhouse.limits import COUNTER_MAX
from keyhouse.schema import Counter, FoldResult, Log, LogState, Record, Schema, Space
from keyhouse.store import BulkDelete, Store, fold, prune
from keyhouse.testing.faults import FaultyEngine
from tests.store.support import hostile_calls
from tests.store.support.hostile_calls import (
    BY_SLUG,
    BY_TITLE,
    DOC,
    HITS,
    NAMED,
    NOTE,
    PLAIN,
    Note,
    Plain,
)
from tests.store.support.shop_workload import SALE, SALES, SHOP, Sale


def test_pruning_keeps_all_events_of_a_stream_that_has_fewer_than_it_keeps() -> None:
    """Pruning kept the newest `keep` events only if there were that many; a shorter stream lost
    all.
    """

    async def scenario() -> None:
        clock = ManualClock()
        store = Store(SHOP, MemoryEngine(clock), "shop")
        for step in range(2):
            await store.append(SALE, Sale(step=step, amount=1), task="t")
        later = clock.advance(seconds=60)
        assert [gone async for gone in prune(store, SALE, before=later, keep=3)] == []
        assert [entry.record.step async for entry in store.scan(SALE)] == [0, 1]
        for step in range(2, 5):
            await store.append(SALE, Sale(step=step, amount=1), task="t")
        later = clock.advance(seconds=60)
        assert [gone async for gone in prune(store, SALE, before=later, keep=3)] == [2]
        assert [entry.record.step async for entry in store.scan(SALE)] == [2, 3, 4]
        state = await store.get(SALES, task="t")
        assert state is not None
        assert state.events == 5

    asyncio.run(scenario())


class Play(msgspec.Struct, kw_only=True):
    book: str


PLAYS = Counter("plays:{book}", name="plays")
PLAYED_SECONDS = Counter("seconds:{book}", name="seconds")
PLAYED = Record(LogState, "played:{user}", name="played")


def _fold(state: LogState | None, event: Play, found: Mapping[str, Any]) -> FoldResult:
    adds = [(counter, 1, {"book": event.book}) for counter in (PLAYS, PLAYED_SECONDS)]
    return FoldResult(LogState(through=""), adds=adds)


PLAY = Log(Play, "play:{user}:{at:ulid}", name="play", state=PLAYED, fold=_fold)
PLAYING = Schema("playing", PLAY, PLAYED, PLAYS, PLAYED_SECONDS, space=Space("a player"))


def test_a_fold_and_a_pruning_take_fewer_events_where_one_commit_holds_little() -> None:
    """Fifty events were folded in one commit; with two rows each that exceeds DynamoDB's limit, so
    the log could not be folded or pruned.
    """

    async def scenario() -> None:
        clock = ManualClock()
        store = Store(PLAYING, FaultyEngine(MemoryEngine(clock), rows=15), "space")
        for number in range(60):
            event, at = Play(book=f"b{number}"), store.ids.new()
            async with store.transaction() as tx:  # past the log, as an import does
                await tx.restore(PLAY, event, user="ann", at=at)
        assert await fold(store, PLAY, user="ann") == 60
        assert await store.count(PLAYS) == await store.count(PLAYED_SECONDS) == 60
        gone = [gone async for gone in prune(store, PLAY, before=clock.advance(seconds=1))]
        assert gone[-1] == 60 and await store.count(PLAY) == 0

    asyncio.run(scenario())


def test_rows_deleted_in_one_commit_are_read_at_once() -> None:
    """Each event was read separately before it was deleted: fifty round trips for one commit."""

    async def scenario() -> None:
        clock = ManualClock()
        engine = FaultyEngine(MemoryEngine(clock))
        store = Store(PLAYING, engine, "space")
        for number in range(40):
            await store.append(PLAY, Play(book=f"b{number}"), user="ann")
        engine.calls["read"] = 0
        assert [gone async for gone in prune(store, PLAY, before=clock.advance(seconds=1))] == [40]
        assert (await BulkDelete(PLAYING, engine, "space").empty()).records == 81, (
            "the counters, and the state"
        )
        assert engine.calls["read"] < 10

    asyncio.run(scenario())


def shelf() -> Store:
    return Store(hostile_calls.SCHEMA, MemoryEngine(ManualClock()), "s")


@pytest.mark.parametrize(
    "attributes",
    [{"number": math.nan}, {"text": math.inf}, {"text": b"\xff"}, {"tags": ["a", b"b"]}],
)
def test_a_value_that_json_would_change_is_rejected(attributes: Any) -> None:
    """The JSON encoder writes null for NaN and base 64 for bytes. A record without floats is not
    searched for NaN; where it allows null or text, a different value was stored.
    """

    async def scenario() -> None:
        store = shelf()
        with pytest.raises(RecordError):
            await store.put(PLAIN, Plain(id="a", **attributes))
        assert await store.get(PLAIN, id="a") is None
        await store.put(PLAIN, Plain(id="a", tags=("a", "b")))  # type: ignore[arg-type]  # says the same as a list
        assert await store.get(PLAIN, id="a") == Plain(id="a", tags=["a", "b"])

    asyncio.run(scenario())


@pytest.mark.parametrize("value", [COUNTER_MAX + 1, -COUNTER_MAX - 1, 2**70])
def test_a_counter_is_not_put_where_it_could_never_be_added_to_again(value: int) -> None:
    """A put accepted any integer; every later add to it failed."""

    async def scenario() -> None:
        store = shelf()
        with pytest.raises(RecordError):
            await store.put(HITS, value, id="a")
        await store.put(HITS, COUNTER_MAX if value > 0 else -COUNTER_MAX, id="a")
        await store.add(HITS, -1 if value > 0 else 1, id="a")

    asyncio.run(scenario())


def test_an_append_after_the_last_ulid_raises_limit_error() -> None:
    """An import may set the last possible position. Every later append raised a Python error."""

    async def scenario() -> None:
        store = Store(SHOP, MemoryEngine(ManualClock()), "shop")
        await store.append(SALE, Sale(step=1, amount=1), task="t", at="7" + "Z" * 25)
        with pytest.raises(LimitError):
            await store.append(SALE, Sale(step=2, amount=1), task="t")
        await store.append(SALE, Sale(step=3, amount=1), task="another")
        assert [entry.record.step async for entry in store.scan(SALE)] == [3, 1]

    asyncio.run(scenario())


@pytest.mark.parametrize("batch_id", ["\ud800", "a\0b", 5, b"x"])
def test_a_batch_id_that_is_not_text_is_rejected_by_name(batch_id: Any) -> None:
    """Its length was computed by encoding it, which raised a Python error."""

    async def scenario() -> None:
        with pytest.raises(LimitError):
            await shelf().transact(lambda tx: tx.put(DOC, 1, id="a"), batch_id=batch_id)

    asyncio.run(scenario())


@pytest.mark.parametrize("space", [None, ["tenant"], b"tenant", 5])
def test_a_space_that_is_not_text_is_rejected_by_name(space: Any) -> None:
    """A tenant often comes from a token, where it may be any JSON: a list raised a Python error."""
    with pytest.raises(KeyFieldError):
        Store(hostile_calls.SCHEMA, MemoryEngine(), space)


def test_a_cursor_with_extra_characters_is_rejected() -> None:
    """Characters outside the alphabet were ignored, so a cursor had many spellings."""

    async def scenario() -> None:
        store = shelf()
        for id in "abc":
            await store.put(DOC, id, id=id)
        cursor = (await store.page(DOC, limit=1)).cursor
        assert cursor is not None
        assert len((await store.page(DOC, cursor=cursor)).entries) == 2
        for changed in (cursor + "!", " " + cursor, cursor[:4] + "\n" + cursor[4:]):
            with pytest.raises(CursorError):
                await store.page(DOC, cursor=changed)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "arguments", [{"limit": "5"}, {"limit": math.nan}, {"limit": None}, {"prefix": 5}]
)
def test_a_limit_and_a_start_of_another_type_are_rejected_by_name(arguments: Any) -> None:
    """Each raised an error of Python or of the engine, which differed between engines."""

    async def scenario() -> None:
        with pytest.raises(UsageError):
            await shelf().page(NAMED, **arguments)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "call", ["get", "page", "watch", "append", "members", "record_count", "lookup"]
)
def test_a_declaration_of_another_kind_is_rejected_by_name(call: str) -> None:
    """Reading an index instead of its record raised `'Unique' has no attribute 'decode'`, and only
    if there was a row.
    """

    async def scenario() -> None:
        store: Any = shelf()
        await store.put(NOTE, Note(id="a", title="t", slug="s"))
        calls: dict[str, Any] = {
            "get": lambda: store.get(BY_SLUG, slug="s"),
            "page": lambda: store.page(BY_TITLE),
            "watch": lambda: anext(store.watch(BY_TITLE)),
            "append": lambda: store.append(PLAIN, Plain(id="a")),
            "members": lambda: store.members(BY_TITLE, title="t", id="a"),
            "record_count": lambda: store.record_count(BY_SLUG, slug="s"),
            "lookup": lambda: store.lookup(NOTE, NOTE, id="a"),
        }
        with pytest.raises(UsageError):
            await calls[call]()

    asyncio.run(scenario())


def test_a_prefix_after_the_last_field_is_rejected_with_its_reason() -> None:
    """The error stated that a missing field is not text."""
    with pytest.raises(UsageError, match="all fields of the key are given"):
        asyncio.run(shelf().page(DOC, id="a", prefix="x"))
