"""Each event of a log is stored once and folded once, whichever process is killed."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from unittest import mock

import msgspec
import pytest

from keyhouse.clock import ManualClock, UlidSource, ulid_at
from keyhouse.errors import RecordError, RevisionError, UnknownOutcomeError, UsageError
from keyhouse.schema import FoldResult, Log, LogState, Record, Schema, Space
from keyhouse.store import Store, Transaction, append_folded, fold
from keyhouse.testing.faults import FaultyEngine, Killed, fail, meanwhile
from tests.store.support.harness import Harness, clean, everywhere
from tests.store.support.library_schema import (
    HEARD,
    HEARING,
    LAST,
    LATER,
    LATER_STATE,
    LINE,
    NEXT_LINE,
    Heard,
    Line,
)
from tests.store.support.log_events import events, heard, imported, later_total, pruned, total

# Appending


@everywhere
async def test_appending_keeps_the_event_and_folds_it_in_one_commit(harness: Harness) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    entry = await store.append(HEARD, heard(5))
    assert engine.calls["commit"] == 1
    assert (
        entry.record.at == entry.values[-1]
        and await events(store) == [5]
        and await total(store) == 5
    )
    state = await store.get(HEARING, user="ann")
    assert state is not None and state.through == entry.values[-1]
    await store.append(HEARD, heard(7, book="c"))
    last = await store.get(LAST, user="ann")
    assert await total(store) == 12 and last is not None and (last.book, last.changes) == ("c", 1)
    await clean(store)


@everywhere
async def test_events_come_in_the_order_in_which_they_were_appended(harness: Harness) -> None:
    store = harness.store()
    for seconds in range(10):
        await store.append(HEARD, heard(seconds))
        if seconds == 4:
            harness.clock.advance(seconds=-3_600)
    assert await events(store, user="ann") == list(range(10)), "though the clock stepped back"


@everywhere
async def test_a_new_position_is_not_read_unless_it_was_taken(harness: Harness) -> None:
    store = harness.store()
    first = await store.append(HEARD, heard(1))
    source = UlidSource(harness.clock, seed=1)
    taken = source.new(after=str(first.values[-1]))
    free = source.new()
    await store.transact(lambda tx: tx.restore(HEARD, msgspec.structs.replace(heard(2), at=taken)))
    drawn, read = iter([taken, taken, free]), list[str]()

    class Drawn:
        def new(self, *, after: str | None = None) -> str:
            return next(drawn)

    async def recorded(space: str, keys: Sequence[str]) -> Any:
        read.extend(keys)
        return await engine_read(space, keys)

    engine_read = store.engine.read
    other = Store(store.schema, harness.engine, store.space, ids=Drawn())
    with mock.patch.object(store.engine, "read", recorded):
        third = await other.append(HEARD, heard(3))
        assert third.values[-1] == free, "the first attempt lost, the second one looked"
        assert sum(taken in key for key in read) == 1
        read.clear()
        last = await store.append(HEARD, heard(4))
    assert not any(str(last.values[-1]) in key for key in read)
    assert await events(store, user="ann") == [1, 2, 3, 4]


@everywhere
async def test_an_event_of_a_process_with_a_slow_clock_is_last_too(
    harness: Harness,
) -> None:
    """Its ULID would be less than the last folded one: it would never be folded."""
    ahead, behind = (
        harness.store(),
        Store(harness.store().schema, harness.engine, "space", ids=UlidSource(ManualClock(1_000))),
    )
    await ahead.append(HEARD, heard(1))
    entry = await behind.append(HEARD, heard(2))
    assert await events(ahead) == [1, 2] and await total(ahead) == 3
    state = await ahead.get(HEARING, user="ann")
    assert state is not None and state.through == entry.values[-1]


@everywhere
async def test_an_import_may_set_an_events_position_after_the_folded_ones(harness: Harness) -> None:
    store = harness.store()
    first = ulid_at(1_000)
    await store.append(HEARD, heard(1), at=first)
    await store.append(HEARD, heard(2), at=ulid_at(2_000))
    before = await harness.rows()
    for at in (ulid_at(1_500), first, ulid_at(2_000)):
        with pytest.raises(RecordError, match="after the last folded"):
            await store.append(HEARD, heard(9), at=at)
    assert await harness.rows() == before and await total(store) == 3


@everywhere
async def test_a_stream_is_named_by_the_event_or_by_the_caller(harness: Harness) -> None:
    class Ping(msgspec.Struct):
        n: int

    ping = Log(Ping, "ping:{host}:{at:ulid}", name="ping")
    store = Store(
        Schema("pings", ping, space=Space("x")), harness.engine, "s", ids=UlidSource(harness.clock)
    )
    entry = await store.append(ping, Ping(1), host="a")
    assert entry.values[0] == "a" and [e.record.n async for e in store.scan(ping, host="a")] == [1]
    with pytest.raises(UsageError, match="key is missing"):
        await store.append(ping, Ping(1))
    assert await pruned(store, ping, before=harness.clock.now() + 1) == [1], (
        "a log that folds nothing is just pruned"
    )


@everywhere
async def test_events_are_appended_within_a_larger_transaction(harness: Harness) -> None:
    store = harness.store()
    async with store.transaction() as tx:
        for seconds in (1, 2, 3):
            await tx.append(HEARD, heard(seconds))
    assert await events(store) == [1, 2, 3] and await total(store) == 6
    await clean(store)


@everywhere
async def test_a_transaction_has_the_verb_append_and_commits_with_it(harness: Harness) -> None:
    """A remote transaction had it, and a local one did not."""
    store = harness.store()

    async def work(tx: Transaction) -> None:
        await tx.append(HEARD, heard(4))
        await tx.append(HEARD, heard(5))
        if await tx.get(HEARING, user="bob") is not None:
            raise LookupError

    await store.transact(work)
    assert await events(store) == [4, 5] and await total(store) == 9
    await store.append(HEARD, heard(1, user="bob"))
    with pytest.raises(LookupError):
        await store.transact(work)
    assert await events(store, user="ann") == [4, 5], (
        "nothing of a transaction that fails is written"
    )
    with pytest.raises(UsageError, match="Only a Log"):
        await store.transact(lambda tx: tx.append(LAST, None))  # type: ignore[arg-type]
    await clean(store)


@everywhere
async def test_records_that_folding_needs_are_read_in_its_transaction(harness: Harness) -> None:
    class Rate(msgspec.Struct):
        book: str
        factor: int

    class Sum(LogState):
        total: int = 0

    def fold_it(state: Sum | None, event: Heard, found: Mapping[str, Any]) -> FoldResult:
        rate: Rate | None = found["rate"]
        seconds = event.seconds * (1 if rate is None else rate.factor)
        return FoldResult(Sum(through="", total=seconds + (0 if state is None else state.total)))

    rates = Record(Rate, "rate:{book}")
    sums = Record(Sum, "sum:{user}", name="sum")
    log = Log(
        Heard,
        "ev:{user}:{at:ulid}",
        name="ev",
        state=sums,
        fold=fold_it,
        needs=lambda event: {"rate": (rates, {"book": event.book})},
    )
    store = Store(
        Schema("rated", rates, sums, log, space=Space("x")),
        harness.engine,
        "s",
        ids=UlidSource(harness.clock),
    )
    await store.append(log, heard(2))
    await store.put(rates, Rate("b", 10))

    async def change() -> None:
        await Store(store.schema, harness.engine, "s").put(rates, Rate("b", 100))

    racing = Store(
        store.schema,
        FaultyEngine(harness.engine, meanwhile(1, change, call="commit")),
        "s",
        ids=store.ids,
    )
    await racing.append(log, heard(3))
    state = await store.get(sums, user="ann")
    assert state is not None and state.total == 302


@everywhere
async def test_an_append_of_an_unknown_outcome_is_repeated_with_its_id_and_counts_once(
    harness: Harness,
) -> None:
    store = harness.store()
    lossy = harness.store(engine=harness.faulty(fail(1, UnknownOutcomeError, after=True)))

    async def once() -> None:
        await lossy.transact(lambda tx: tx.append(HEARD, heard(5)), batch_id="event-1")

    with pytest.raises(UnknownOutcomeError):
        await once()
    await once()
    assert await events(store) == [5] and await total(store) == 5


@everywhere
async def test_many_append_at_once_and_every_event_counts_once(harness: Harness) -> None:
    store = harness.store(engine=harness.faulty(yields=True))
    await asyncio.gather(
        *(store.append(HEARD, heard(number, user="ab"[number % 2])) for number in range(40))
    )
    assert sorted(await events(store)) == list(range(40))
    assert await total(store, "a") + await total(store, "b") == sum(range(40))
    await clean(store)


@everywhere
async def test_a_put_of_an_event_is_rejected_with_the_function_to_call(harness: Harness) -> None:
    """It was stored but never folded, and a sequence assigned its position again."""
    store = harness.store()
    event = Heard(user="ann", book="b", seconds=5, at=ulid_at(1_000))
    events: list[tuple[Log[Any], Any, dict[str, Any]]] = [
        (HEARD, event, {}),
        (LATER, event, {}),
        (LINE, Line("x"), {"job": "j", "n": 0}),
    ]
    for log, value, fields in events:
        with pytest.raises(UsageError, match="written by `append`, which also folds"):
            await store.put(log, value, **fields)
    async with store.transaction() as tx:
        with pytest.raises(UsageError, match="append"):
            await tx.put(HEARD, event)
    assert await harness.rows() == {}


@everywhere
async def test_a_migration_changes_events_by_restore_and_keeps_the_state(
    harness: Harness,
) -> None:
    store = harness.store()
    entry = await store.append(HEARD, heard(5, book="old"))
    async with store.transaction() as tx:
        await tx.restore(HEARD, msgspec.structs.replace(entry.record, book="new"))
    [changed] = [found.record async for found in store.scan(HEARD, user="ann")]
    assert changed.book == "new" and changed.at == entry.record.at and await total(store) == 5
    await clean(store)


@everywhere
async def test_a_rejected_event_leaves_nothing_in_the_transaction(
    harness: Harness,
) -> None:
    """A caller catches the error and continues: the sequence had counted the missing line, and an
    event whose folding failed was stored unfolded.
    """
    store = harness.store()

    async with store.transaction() as tx:
        await tx.append(LINE, Line("first"), job="j")
        with pytest.raises(RecordError):
            await tx.append(LINE, Line(5), job="j")  # type: ignore[arg-type]
        with pytest.raises(RecordError):
            await tx.append(HEARD, heard("x"))  # type: ignore[arg-type]
        with (
            mock.patch.dict(vars(HEARD), fold=mock.Mock(side_effect=ValueError("no"))),
            pytest.raises(ValueError, match="no"),
        ):
            await tx.append(HEARD, heard(5))
        await tx.append(LINE, Line("second"), job="j")
    lines = [(entry.values[-1], entry.record.text) async for entry in store.scan(LINE, job="j")]
    assert lines == [(0, "first"), (1, "second")] and await store.get(NEXT_LINE, job="j") == 2
    assert await events(store) == [] and await total(store) == 0


@everywhere
async def test_an_append_returns_the_effect_of_its_event(harness: Harness) -> None:
    store = harness.store()
    async with store.transaction() as tx:
        folded = await append_folded(tx, HEARD, heard(5), {"last": None})
        with pytest.raises(UsageError, match="does not fold"):
            await append_folded(tx, LINE, Line("x"), {})
    assert folded.state == await store.get(HEARING, user="ann") and folded.state.through
    [(record, last, _)] = folded.puts
    stored = await store.get(LAST, user="ann")
    assert record is LAST and stored is not None and last.book == stored.book
    assert await events(store) == [5] and await total(store) == 5


@everywhere
async def test_an_event_is_never_written_over_another(harness: Harness) -> None:
    class Tick(msgspec.Struct):
        n: int

    tick = Log(Tick, "tick:{at:ulid}", name="tick")
    store = Store(Schema("ticks", tick, space=Space("x")), harness.engine, "s")
    await store.append(tick, Tick(1), at=ulid_at(5))
    with pytest.raises(RevisionError):
        await store.append(tick, Tick(2), at=ulid_at(5))


# Sequences


@everywhere
async def test_a_sequence_counts_without_a_hole_or_a_repeat(harness: Harness) -> None:
    store = harness.store(engine=harness.faulty(yields=True))
    await asyncio.gather(*(store.append(LINE, Line(f"{number}"), job="j") for number in range(20)))
    entries = [entry async for entry in store.scan(LINE, job="j")]
    assert [entry.values[-1] for entry in entries] == list(range(20))
    assert await store.get(NEXT_LINE, job="j") == 20
    await store.append(LINE, Line("other"), job="k")
    assert await store.get(NEXT_LINE, job="k") == 1
    with pytest.raises(UsageError, match="have no time"):
        await pruned(store, LINE, before=harness.clock.now())


@everywhere
async def test_a_kill_between_two_lines_leaves_no_hole(harness: Harness) -> None:
    store = harness.store()
    for after in (False, True):
        with pytest.raises(Killed):
            await harness.store(engine=harness.faulty(fail(1, Killed, after=after))).append(
                LINE,
                Line("x"),
                job="j",
            )
        await store.append(LINE, Line("y"), job="j")
    entries = [entry async for entry in store.scan(LINE, job="j")]
    assert [entry.values[-1] for entry in entries] == [0, 1, 2]


# Events that were written past the log


@everywhere
async def test_events_past_the_log_are_folded_many_in_a_commit(
    harness: Harness,
) -> None:
    engine = harness.faulty()
    store = harness.store(engine=engine)
    for seconds in range(120):
        await imported(store, heard(seconds))
    assert await later_total(store) == 0
    engine.calls["commit"] = 0
    assert await fold(store, LATER, user="ann") == 120
    assert engine.calls["commit"] == 3 and await later_total(store) == sum(range(120))
    assert (
        await fold(store, LATER, user="ann") == 0 and await fold(store, LATER, user="nobody") == 0
    )
    await imported(store, heard(1_000, book="c"))
    assert (
        await fold(store, LATER, user="ann") == 1
        and await later_total(store) == sum(range(120)) + 1_000
    )
    state = await store.get(LATER_STATE, user="ann")
    assert state is not None and state.changes == 1


@everywhere
async def test_a_fold_that_is_killed_anywhere_folds_every_event_once(
    harness: Harness,
) -> None:
    store = harness.store()
    count = 0
    for after in (False, True):
        for at in (1, 2, 3):
            for _ in range(120):
                await imported(store, heard(1))
            count += 120
            with pytest.raises(Killed):
                await fold(
                    harness.store(engine=harness.faulty(fail(at, Killed, after=after))),
                    LATER,
                    user="ann",
                )
            await fold(store, LATER, user="ann")
            assert await later_total(store) == count


@everywhere
async def test_two_that_fold_at_once_fold_each_event_once(harness: Harness) -> None:
    store = harness.store(engine=harness.faulty(yields=True))
    for _ in range(70):
        await imported(store, heard(1))
    await asyncio.gather(*(fold(store, LATER, user="ann") for _ in range(4)))
    assert await later_total(store) == 70


@everywhere
async def test_events_that_came_past_the_log_are_not_pruned_before_they_are_folded(
    harness: Harness,
) -> None:
    """An import wrote events without a state: nothing was folded, and everything was pruned."""
    store = harness.store()
    for seconds in (1_000, 2_000):
        await imported(store, heard(seconds))
    now = harness.clock.advance(seconds=10)
    assert await pruned(store, LATER, before=now) == []
    assert await events(store, LATER) == [1_000, 2_000]
    assert await fold(store, LATER, user="ann") == 2 and await later_total(store) == 3_000
    assert await pruned(store, LATER, before=now) == [2]
