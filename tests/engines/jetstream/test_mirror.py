"""The mirror: what it shows of commits that come in pieces, what it keeps, and how it finds back when something is odd."""

import asyncio
from pathlib import Path

import nats.js.errors
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Change, Row, Span
from keyhouse.engines.jetstream import JetstreamEngine, sweep
from keyhouse.engines.jetstream.feed import BATCH_MESSAGES, PRUNE_DELAY_SECONDS
from keyhouse.engines.jetstream.layout import RowKey
from keyhouse.engines.jetstream.message import Entry, entry
from keyhouse.engines.jetstream.mirror import Mirror
from keyhouse.engines.jetstream.sweep import ID_MARGIN_MILLISECONDS
from keyhouse.engines.jetstream.value_cache import ValueCache
from keyhouse.errors import CounterError, UnreadableError, WatchExpiredError
from keyhouse.limits import BATCH_ID_KEPT_SECONDS
from keyhouse.testing.conformance.harness import step
from tests.engines.support.jetstream_rows import ALL, eventually, put, run, value
from tests.support.nats_servers import Beside, beside


def filled(*messages: tuple[int, str, int]) -> Mirror:
    """One to which these were delivered: sequence, key, how many of the same commit follow."""
    mirror = Mirror(ValueCache(1_000))
    mirror.finish_loading()
    for message in messages:
        deliver(mirror, *message)
    return mirror


def deliver(mirror: Mirror, sequence: int, key: str, behind: int = 0) -> None:
    mirror.deliver(RowKey("s", key), Entry(sequence, sequence + behind), b"%d" % sequence)


def shown(mirror: Mirror) -> dict[str, int]:
    return {key: found.sequence for key, found in mirror.scan("s", ALL, reverse=False)}


def test_a_commit_is_shown_when_its_last_message_has_come() -> None:
    mirror = filled((1, "a", 0), (2, "a", 2), (3, "b", 1))
    assert shown(mirror) == {"a": 1}
    assert mirror.position == 1
    deliver(mirror, 4, "c")
    assert shown(mirror) == {"a": 2, "b": 3, "c": 4}
    assert mirror.position == 4


def test_a_commit_whose_last_message_was_replaced_is_shown_with_what_replaced_it() -> None:
    mirror = filled((1, "a", 0), (2, "b", 0), (3, "a", 1))  # 4 was b, and 6 has replaced it
    deliver(mirror, 6, "b")
    assert shown(mirror) == {"a": 3, "b": 6}


def test_no_half_of_a_commit_shows_though_the_other_half_waits_in_a_later_one() -> None:
    """3 and 4 were one commit, and 5 and 6 another, which replaced 4: to show 3 without 5 would show a beside an old b."""
    mirror = filled((1, "a", 0), (2, "b", 0), (3, "a", 1))
    deliver(mirror, 5, "b", 1)
    assert shown(mirror) == {"a": 1, "b": 2}
    deliver(mirror, 6, "c")
    assert shown(mirror) == {"a": 3, "b": 5, "c": 6}


def test_what_is_known_not_to_come_any_more_is_not_waited_for() -> None:
    mirror = filled((1, "a", 1))
    assert shown(mirror) == {}
    mirror.advance(2)
    assert shown(mirror) == {"a": 1}


def test_changes_since_a_revision_are_the_newest_of_each_key_in_order() -> None:
    mirror = filled((1, "a", 0), (2, "b", 0), (3, "c", 0), (4, "a", 0), (5, "b", 0))
    mirror.deliver(RowKey("s", "c"), Entry(6, 6, is_tombstone=True), b"")
    assert [(key, found.sequence) for key, found in mirror.changes_since("s", 3)] == [
        ("a", 4),
        ("b", 5),
        ("c", 6),
    ]
    assert [(key, found.sequence) for key, found in mirror.changes_since("s", 0)] == [
        ("a", 4),
        ("b", 5),
        ("c", 6),
    ]
    assert mirror.changes_since("s", 6) == []


def test_expiries_of_rows_that_were_written_again_do_not_pile_up() -> None:
    mirror = filled()
    for number in range(1, 20_000):
        mirror.deliver(RowKey("s", f"k{number % 10}"), Entry(number, number, expires=number), b"1")
    assert len(mirror._expiries) < 5_000
    assert len(mirror.take_expired(10**9, 100)) == 10
    assert mirror.take_expired(10**9, 100) == []


def test_values_are_kept_up_to_a_number_of_bytes() -> None:
    values = ValueCache(10_000)
    for sequence in range(100):
        values.put(sequence, b"x" * 840)
    kept = [sequence for sequence in range(100) if values.get(sequence) is not None]
    assert kept == list(range(90, 100))
    values.get(90)
    values.put(100, b"x" * 840)
    assert values.get(90) is not None
    assert values.get(91) is None
    values.drop(90)
    values.put(101, b"x" * 100_000)
    assert values.get(101) is None


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "²", "1" * 40])
def test_a_header_that_somebody_else_wrote_is_passed_over(text: str) -> None:
    assert entry(7, {"Keyhouse-Expires": text, "Keyhouse-Behind": text}) == Entry(7, 7)


# With a server


def test_values_that_are_not_kept_are_fetched(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        keys = [f"k{number:03d}" for number in range(200)]
        start = await put(there.engine, "start")
        for index in range(0, 200, 50):
            await put(there.engine, *keys[index : index + 50], value=b"%d" % index)
        expected = [b"%d" % (number // 50 * 50) for number in range(200)]
        rows = await there.engine.read("s", keys)
        assert [row and row.value for row in rows] == expected
        page = await there.engine.scan("s", Span.prefix("k"), limit=1_000)
        assert [row.value for row in page.rows] == expected
        await there.engine.commit("s", Batch(adds=(Add("k000", 7), Add("k199", 7))))
        assert [await value(there.engine, key) for key in ("k000", "k199")] == [b"7", b"157"]
        watch = there.engine.watch("s", Span.prefix("k0"), since=start)
        assert [(await step(watch)).value for _ in range(99)] == expected[1:100]
        await watch.aclose()
        await put(there.engine, "text", value=b'"x"')
        with pytest.raises(CounterError):
            await there.engine.commit("s", Batch(adds=(Add("text", 1),)))

    run(tmp_path, scenario, more="&values=300")


def test_a_page_of_values_that_are_fetched_is_of_one_moment(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        keys = [f"k{number:02d}" for number in range(40)]

        async def write() -> None:
            for number in range(30):
                await put(there.engine, *keys, value=b"%d" % number)

        writing = asyncio.ensure_future(write())
        while not writing.done():
            page = await there.engine.scan("s", ALL, limit=100)
            assert len({(row.revision, row.value) for row in page.rows}) <= 1
        await writing

    run(tmp_path, scenario, more="&values=300")


def test_a_consumer_that_is_gone_is_replaced(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        await put(there.engine, "a")
        kv = await there.kv()
        for number in range(3):
            listed = await there.api(f"CONSUMER.LIST.KV_{there.bucket}")
            for consumer in listed["consumers"]:
                await there.api(f"CONSUMER.DELETE.KV_{there.bucket}.{consumer['name']}")
            await kv.put("theirs", b"%d" % number)
            assert await value(there.engine, "theirs") == b"%d" % number

    run(tmp_path, scenario)


def test_a_bucket_that_was_deleted_is_empty_and_is_made_again(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        for _ in range(2):
            await put(there.engine, "a", "b")
            await there.js.delete_key_value(there.bucket)
            assert await there.engine.read("s", ["a"]) == [None]
            assert (await there.engine.scan("s", ALL, limit=10)).rows == []
        revision = await put(there.engine, "c")
        page = await there.engine.scan("s", ALL, limit=10)
        assert page.rows == [Row("c", b"1", revision)]

    run(tmp_path, scenario)


def test_what_an_administrator_purged_is_no_hindrance(tmp_path: Path) -> None:
    """Nobody is told of a purge: the server expects another sequence than the mirror shows."""

    async def scenario(there: Beside) -> None:
        await put(there.engine, "a", "b", "c")
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=f"$KV.{there.bucket}.a")
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=f"$KV.{there.bucket}.c")
        await put(there.engine, "a", value=b"2")
        await put(there.engine, "b", "c", value=b"3")
        assert [await value(there.engine, key) for key in "abc"] == [b"2", b"3", b"3"]
        other = JetstreamEngine.open(there.url)
        assert [await value(other, key) for key in "abc"] == [b"2", b"3", b"3"]
        await other.close()

    run(tmp_path, scenario)


def test_a_bucket_of_many_rows_is_read_in_pieces_while_it_is_written(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        rows = 4 * BATCH_MESSAGES
        for start in range(0, rows, 500):
            await put(there.engine, *(f"k{number:05d}" for number in range(start, start + 500)))
        last = await there.engine.commit(
            "s", Batch(deletes=tuple(f"k{number:05d}" for number in range(0, rows, 4)))
        )
        assert last is not None
        other = JetstreamEngine.open(there.url)
        writing = asyncio.ensure_future(put(there.engine, "k00001", "k01999", "new", value=b"2"))
        page = await other.scan("s", ALL, limit=10_000)
        revision = await writing
        assert len(page.rows) in (rows * 3 // 4, rows * 3 // 4 + 1)
        page = await other.scan("s", ALL, limit=10_000)
        assert [row.key for row in page.rows if row.value == b"2"] == ["k00001", "k01999", "new"]
        assert {row.revision for row in page.rows if row.value == b"2"} == {revision}
        assert page.rows == (await there.engine.scan("s", ALL, limit=10_000)).rows
        await other.close()

    run(tmp_path, scenario)


def test_a_stream_whose_end_was_purged_is_read_at_once(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        await put(there.engine, "a")
        await put(there.engine, "b")
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=f"$KV.{there.bucket}.b")
        other = JetstreamEngine.open(there.url)
        async with asyncio.timeout(2):
            page = await other.scan("s", ALL, limit=10)
        assert [row.key for row in page.rows] == ["a"]
        assert await put(other, "b") == 3
        await other.close()

    run(tmp_path, scenario)


# Pruning


@pytest.fixture
def counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages about the horizon count as changes, so that few are enough for a pruning."""
    monkeypatch.setattr(sweep, "HORIZONS_KEPT", 0)


def test_markers_are_pruned_when_everyone_has_heard_of_it(tmp_path: Path, counts_all: None) -> None:
    clock = ManualClock()

    async def scenario(there: Beside) -> None:
        other = JetstreamEngine.open(there.url, clock=clock, changes_kept=10)
        keys = [f"k{number:02d}" for number in range(20)]
        for key in keys:
            await put(there.engine, key)
        start = await put(there.engine, "start")
        assert await value(other, "k00") == b"1"
        for key in keys:
            await there.engine.commit("s", Batch(deletes=(key,)))
        last = await put(there.engine, "last")
        await there.engine.sweep(limit=10)
        assert (await there.state()).messages == 20 + 2 + 1, "announced, and not yet pruned"
        for engine in (there.engine, other):
            watch = engine.watch("s", ALL, since=start)
            with pytest.raises(WatchExpiredError):
                await step(watch)
        watch = other.watch("s", ALL, since=last)
        clock.advance(seconds=PRUNE_DELAY_SECONDS)
        await there.engine.sweep(limit=10)
        assert (await there.state()).messages < 20
        for engine in (there.engine, other):
            assert await engine.read("s", ["k00", "k19", "last"]) == [
                None,
                None,
                Row("last", b"1", last),
            ]
        first = await put(other, "k00", value=b"2")
        second = await put(there.engine, "k01", value=b"3")
        assert [await step(watch), await step(watch)] == [
            Change("k00", first, b"2"),
            Change("k01", second, b"3"),
        ]
        await watch.aclose()
        third = JetstreamEngine.open(there.url, clock=clock, changes_kept=10)
        rows = (await third.scan("s", ALL, limit=100)).rows
        assert [row.key for row in rows] == ["k00", "k01", "last", "start"]
        await third.close()
        await other.close()

    run(tmp_path, scenario, clock=clock, changes_kept=10)


def test_who_did_not_hear_of_a_pruning_in_time_fills_its_mirror_anew(
    tmp_path: Path, counts_all: None
) -> None:
    """As a process that was stopped for an hour: it would go on behind the last message it saw, and miss the deletes."""
    clock = ManualClock()

    async def scenario(there: Beside) -> None:
        other = JetstreamEngine.open(there.url, clock=clock, changes_kept=10)
        for key in "abc":
            await put(there.engine, key)
        assert await value(other, "a") == b"1"
        bucket = next(iter(other._buckets.values()))
        await bucket._feed.stop()
        await there.engine.commit("s", Batch(deletes=("a",)))
        for number in range(30):
            await put(there.engine, f"k{number}")
        for _ in range(2):
            await there.engine.sweep(limit=10)
            clock.advance(seconds=PRUNE_DELAY_SECONDS)
        await there.engine.sweep(limit=10)
        with pytest.raises(nats.js.errors.NotFoundError):
            await there.js.get_last_msg(f"KV_{there.bucket}", f"$KV.{there.bucket}.a")
        bucket._feed.start()
        assert await value(other, "a") is None
        assert await value(other, "k29") == b"1"
        await other.close()

    run(tmp_path, scenario, clock=clock, changes_kept=10)


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff", b"[]", b'{"horizon": 1000000, "pruned": 0, "at": 0}']
)
def test_what_others_write_in_place_of_the_horizon_ends_no_watch_and_is_replaced(
    tmp_path: Path, counts_all: None, garbage: bytes
) -> None:
    """It ended the feed, and nothing could be read or watched any more: not by who heard it, nor by who came later."""
    clock = ManualClock()

    async def scenario(there: Beside) -> None:
        subject = f"$KEYHOUSE.{there.bucket}.horizon"
        early = await put(there.engine, "a")
        watch = there.engine.watch("s", ALL, since=await put(there.engine, "b"))
        deleted = await there.engine.commit("s", Batch(deletes=("b",)))
        assert await step(watch) == Change("b", deleted or 0, None)
        await there.js.publish(subject, garbage)
        later = JetstreamEngine.open(there.url, clock=clock, changes_kept=10)
        for engine in (there.engine, later):
            assert await value(engine, "a") == b"1" and await value(engine, "b") is None
            with pytest.raises(WatchExpiredError):
                await step(engine.watch("s", ALL, since=early))
        after = await put(later, "b", value=b"2")
        assert await step(watch) == Change("b", after, b"2")
        await watch.aclose()
        clock.advance(seconds=PRUNE_DELAY_SECONDS)
        await there.engine.sweep(limit=10)
        assert b'"pruned":' in (
            (await there.js.get_last_msg(f"KV_{there.bucket}", subject)).data or b""
        )
        assert await value(later, "b") == b"2"
        await later.close()

    run(tmp_path, scenario, clock=clock, changes_kept=10)


def test_a_horizon_that_somebody_has_purged_is_put_there_again(
    tmp_path: Path, counts_all: None
) -> None:
    """The sweep expected the one that it knew, found none, and took it for another's that was faster: for ever."""
    clock = ManualClock()

    async def scenario(there: Beside) -> None:
        subject = f"$KEYHOUSE.{there.bucket}.horizon"
        await put(there.engine, *(f"k{number}" for number in range(30)))
        await there.engine.sweep(limit=10)
        await there.js.get_last_msg(f"KV_{there.bucket}", subject)
        assert await value(there.engine, "k0") == b"1"  # it has heard of it
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=subject)
        for _ in range(2):
            clock.advance(seconds=PRUNE_DELAY_SECONDS)
            await there.engine.sweep(limit=10)
        await there.js.get_last_msg(f"KV_{there.bucket}", subject)

    run(tmp_path, scenario, clock=clock, changes_kept=10)


def test_a_batch_whose_id_others_have_written_over_is_refused_alone(tmp_path: Path) -> None:
    """Whether it was applied can't be known. It failed with an error of the decoder, and so did the commits beside it."""
    clock = ManualClock()

    async def scenario(there: Beside) -> None:
        await there.engine.commit("s", Batch(adds=(Add("n", 1),), id="mine"))
        await there.js.publish(f"$KEYHOUSE.{there.bucket}.id.s.mine", b"garbage")
        other = JetstreamEngine.open(there.url, clock=clock)
        commits = [
            other.commit("s", Batch(adds=(Add("n", 1),), id=name))
            for name in ("one", "mine", "two")
        ]
        one, mine, two = await asyncio.gather(*commits, return_exceptions=True)
        assert isinstance(one, int) and isinstance(two, int)
        assert isinstance(mine, UnreadableError) and "id.s.mine" in str(mine)
        assert await value(other, "n") == b"3"
        with pytest.raises(UnreadableError, match="purge its subject"):
            clock.advance(seconds=2 * BATCH_ID_KEPT_SECONDS)
            await other.sweep(limit=10)
        await other.close()

    run(tmp_path, scenario, clock=clock)


def test_batch_ids_are_pruned_after_their_day(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(there: Beside) -> None:
        for number in range(10):
            await there.engine.commit("s", Batch(adds=(Add("n", 1),), id=f"old {number}"))
        clock.advance(seconds=BATCH_ID_KEPT_SECONDS // 2)
        for number in range(5):
            await there.engine.commit("s", Batch(adds=(Add("n", 1),), id=f"new {number}"))
        await there.engine.sweep(limit=10)
        assert (await there.state()).messages == 16
        clock.advance(seconds=BATCH_ID_KEPT_SECONDS // 2, milliseconds=ID_MARGIN_MILLISECONDS)
        await there.engine.sweep(limit=10)
        assert (await there.state()).messages == 6
        await there.engine.commit("s", Batch(adds=(Add("n", 1),), id="new 4"))
        assert await value(there.engine, "n") == b"15"
        clock.advance(seconds=BATCH_ID_KEPT_SECONDS)
        await there.engine.sweep(limit=10)
        assert (await there.state()).messages == 1

    run(tmp_path, scenario, clock=clock)


def test_a_bucket_is_read_again_when_its_feed_was_interrupted(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with beside(tmp_path) as there:
            await put(there.engine, "a")
            kv = await there.kv()
            for number in range(5):
                for bucket in there.engine._buckets.values():
                    bucket.on_disconnect()
                await kv.put("b", b"%d" % number)

                async def seen(expected: bytes = b"%d" % number) -> bool:
                    return await value(there.engine, "b") == expected

                await eventually(seen)

    asyncio.run(scenario())
