"""The mirror and its feed: partly delivered commits, caching, restarts and pruning."""

import asyncio
from pathlib import Path

import nats.js.errors
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Change, Row, Span
from keyhouse.engines.jetstream import JetstreamEngine, feed, sweep
from keyhouse.engines.jetstream import bucket as bucket_module
from keyhouse.engines.jetstream.feed import PRUNE_DELAY_SECONDS
from keyhouse.engines.jetstream.layout import RowKey
from keyhouse.engines.jetstream.message import Entry, entry
from keyhouse.engines.jetstream.mirror import RECENT_CHANGES, Mirror
from keyhouse.engines.jetstream.sweep import ID_MARGIN_MILLISECONDS
from keyhouse.engines.jetstream.value_cache import ValueCache
from keyhouse.errors import CounterError, UnreadableError, WatchExpiredError
from keyhouse.limits import BATCH_ID_KEPT_SECONDS
from keyhouse.testing.conformance.harness import step
from tests.engines.support.jetstream_rows import ALL, put, run, value
from tests.support.nats_servers import SharedBucket, shared_bucket
from tests.support.polling import until


def filled(*messages: tuple[int, str, int]) -> Mirror:
    """Return a mirror that received these: sequence, key, how many of the same commit follow."""
    mirror = Mirror(ValueCache(1_000))
    mirror.finish_loading()
    for message in messages:
        deliver(mirror, *message)
    return mirror


def deliver(mirror: Mirror, sequence: int, key: str, behind: int = 0) -> None:
    mirror.deliver(RowKey("s", key), Entry(sequence, sequence + behind), b"%d" % sequence)


def published(mirror: Mirror) -> dict[str, int]:
    return {key: found.sequence for key, found in mirror.scan("s", ALL, reverse=False)}


def test_a_commit_is_published_with_its_last_message() -> None:
    mirror = filled((1, "a", 0), (2, "a", 2), (3, "b", 1))
    assert published(mirror) == {"a": 1}
    assert mirror.position == 1
    deliver(mirror, 4, "c")
    assert published(mirror) == {"a": 2, "b": 3, "c": 4}
    assert mirror.position == 4


def test_a_commit_whose_last_message_was_replaced_is_published_with_the_replacement() -> None:
    mirror = filled((1, "a", 0), (2, "b", 0), (3, "a", 1))  # 4 was b; 6 replaced it
    deliver(mirror, 6, "b")
    assert published(mirror) == {"a": 3, "b": 6}


def test_no_part_of_a_commit_is_published_while_a_later_commit_holds_the_rest() -> None:
    """3 and 4 were one commit; 5 and 6 another, which replaced 4. Publishing 3 without 5 would show
    the new a beside the old b."""
    mirror = filled((1, "a", 0), (2, "b", 0), (3, "a", 1))
    deliver(mirror, 5, "b", 1)
    assert published(mirror) == {"a": 1, "b": 2}
    deliver(mirror, 6, "c")
    assert published(mirror) == {"a": 3, "b": 5, "c": 6}


def test_advance_completes_a_commit_whose_rest_no_longer_exists() -> None:
    mirror = filled((1, "a", 1))
    assert published(mirror) == {}
    mirror.advance(2)
    assert published(mirror) == {"a": 1}


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


def test_expired_rows_are_those_that_were_not_written_again() -> None:
    mirror = filled()
    for number in range(1, 3_000):
        mirror.deliver(RowKey("s", f"k{number % 10}"), Entry(number, number, expires=number), b"1")
    mirror.deliver(RowKey("s", "k1"), Entry(3_000, 3_000), b"1")
    assert {sequence for _, sequence in mirror.expired(2_995, 100)} == {2_990, *range(2_992, 2_996)}
    assert len(mirror.expired(10**9, 100)) == 9
    assert len(mirror.expired(10**9, 4)) == 4
    assert mirror.spaces(10**9) == ["s"]


def test_changes_older_than_the_log_are_found_among_all_rows() -> None:
    """The log is short: a watch that resumes after a long time reads the rows of its space."""
    keys = [f"k{number:05d}" for number in range(RECENT_CHANGES)]
    mirror = filled((1, "first", 0), *[(number, key, 0) for number, key in enumerate(keys, 2)])
    mirror.deliver(RowKey("t", "k"), Entry(20_000, 20_000), b"1")
    assert len(mirror.changes_since("s", 0)) == RECENT_CHANGES + 1
    for since in (1, 5, 1_000, RECENT_CHANGES):
        assert [key for key, _ in mirror.changes_since("s", since)] == keys[since - 1 :]


def test_values_are_cached_up_to_a_number_of_bytes() -> None:
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
def test_a_foreign_header_value_is_ignored(text: str) -> None:
    headers = f"NATS/1.0\r\nKeyhouse-Expires: {text}\r\nKeyhouse-Behind: {text}\r\n\r\n"
    assert entry(7, headers.encode()) == Entry(7, 7)


def test_a_commit_is_not_larger_than_the_server_allows() -> None:
    """A foreign message could announce a commit that never ends, and no read would be answered."""
    assert entry(7, b"NATS/1.0\r\nKeyhouse-Behind: 999\r\n\r\n") == Entry(7, 1_006)
    assert entry(7, b"NATS/1.0\r\nKeyhouse-Behind: 1000\r\n\r\n") == Entry(7, 7)


# With a server


def test_evicted_values_are_fetched(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
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


def test_a_page_with_fetched_values_is_consistent(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
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


def test_a_deleted_consumer_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its silence is noticed after three to four seconds, which is as long as a read waits."""
    monkeypatch.setattr(bucket_module, "TIMEOUT_SECONDS", 30.0)
    monkeypatch.setattr("keyhouse.engines.jetstream.consumer.SILENCE_SECONDS", 1.2)

    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a")
        kv = await there.kv()
        for number in range(2):  # the consumer that replaces it is replaced too
            listed = await there.api(f"CONSUMER.LIST.KV_{there.bucket}")
            for consumer in listed["consumers"]:
                await there.api(f"CONSUMER.DELETE.KV_{there.bucket}.{consumer['name']}")
            await kv.put("theirs", b"%d" % number)
            assert await value(there.engine, "theirs") == b"%d" % number

    run(tmp_path, scenario)


def test_a_deleted_bucket_is_empty_and_is_created_again(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        for _ in range(2):
            await put(there.engine, "a", "b")
            await there.js.delete_key_value(there.bucket)
            assert await there.engine.read("s", ["a"]) == [None]
            assert (await there.engine.scan("s", ALL, limit=10)).rows == []
        revision = await put(there.engine, "c")
        page = await there.engine.scan("s", ALL, limit=10)
        assert page.rows == [Row("c", b"1", revision)]

    run(tmp_path, scenario)


def test_a_purged_row_can_be_written_again(tmp_path: Path) -> None:
    """A purge is not announced: the server expects another sequence than the mirror holds."""

    async def scenario(there: SharedBucket) -> None:
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


@pytest.mark.parametrize("history", [1, 5])
def test_a_read_ends_although_another_program_has_purged_a_row(
    tmp_path: Path, history: int
) -> None:
    """A value that the cache had evicted was fetched again and again, without an end."""

    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a", "b", "c", value=b"1")
        if history > 1:
            config = (await there.api(f"STREAM.INFO.KV_{there.bucket}"))["config"]
            config["max_msgs_per_subject"] = history
            await there.api(f"STREAM.UPDATE.KV_{there.bucket}", **config)
        await put(there.engine, "b", "c", value=b"2" * 200)
        await put(there.engine, "x", value=b"x" * 400)  # evicts the others
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=f"$KV.{there.bucket}.b")
        async with asyncio.timeout(20):
            rows = await there.engine.read("s", ["a", "b", "c"])
            page = await there.engine.scan("s", ALL, limit=10)
        assert [row and row.value for row in rows] == [b"1", None, b"2" * 200]
        assert [row.key for row in page.rows] == ["a", "c", "x"]
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=f"$KV.{there.bucket}.c")
        async with asyncio.timeout(20):
            page = await there.engine.scan("s", ALL, limit=10)
        assert [row.key for row in page.rows] == ["a", "x"]
        await put(there.engine, "b", value=b"3")
        assert await value(there.engine, "b") == b"3"

    run(tmp_path, scenario, more="&values=300")


def test_a_large_bucket_is_loaded_while_it_is_written(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        rows = 4_000
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


def test_a_stream_whose_end_was_purged_loads_without_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for a message nor for a heartbeat: here the first would come after a minute, and the
    read would fail."""

    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a")
        await put(there.engine, "b")
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=f"$KV.{there.bucket}.b")
        other = JetstreamEngine.open(there.url)
        monkeypatch.setattr(feed, "HEARTBEAT_SECONDS", 60)
        page = await other.scan("s", ALL, limit=10)
        assert [row.key for row in page.rows] == ["a"]
        assert await put(other, "b") == 3
        await other.close()

    run(tmp_path, scenario)


# Pruning


@pytest.fixture
def horizons_count_as_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count horizon messages as changes, so that a few are enough to prune."""
    monkeypatch.setattr(sweep, "HORIZONS_KEPT", 0)


def test_tombstones_are_pruned_after_the_announcement_delay(
    tmp_path: Path, horizons_count_as_changes: None
) -> None:
    clock = ManualClock()

    async def scenario(there: SharedBucket) -> None:
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


def test_a_feed_that_missed_a_pruning_reloads_its_mirror(
    tmp_path: Path, horizons_count_as_changes: None
) -> None:
    """Like a process stopped for an hour: resuming after its last message would miss deletes."""
    clock = ManualClock()

    async def scenario(there: SharedBucket) -> None:
        other = JetstreamEngine.open(there.url, clock=clock, changes_kept=10)
        for key in "abc":
            await put(there.engine, key)
        assert await value(other, "a") == b"1"
        bucket = next(iter(other.buckets.values()))
        await bucket.feed.stop()
        await there.engine.commit("s", Batch(deletes=("a",)))
        for number in range(30):
            await put(there.engine, f"k{number}")
        for _ in range(2):
            await there.engine.sweep(limit=10)
            clock.advance(seconds=PRUNE_DELAY_SECONDS)
        await there.engine.sweep(limit=10)
        with pytest.raises(nats.js.errors.NotFoundError):
            await there.js.get_last_msg(f"KV_{there.bucket}", f"$KV.{there.bucket}.a")
        bucket.feed.start()
        assert await value(other, "a") is None
        assert await value(other, "k29") == b"1"
        await other.close()

    run(tmp_path, scenario, clock=clock, changes_kept=10)


def test_a_reload_of_the_mirror_loses_no_change_of_a_page_that_is_being_delivered(
    tmp_path: Path,
) -> None:
    """The new mirror's entries were other objects than those of the page, so none of the rest was
    delivered, and the watch continued after them."""

    async def scenario(there: SharedBucket) -> None:
        for key in "abc":
            await put(there.engine, key)
        await there.engine.commit("s", Batch(deletes=("b",)))
        watch = there.engine.watch("s", ALL, since=0)
        keys = [(await step(watch)).key]
        bucket = next(iter(there.engine.buckets.values()))
        await bucket.feed.stop()
        bucket.feed.replace_mirror()
        bucket.feed.start()
        keys += [(await step(watch)).key for _ in range(2)]
        assert keys == ["a", "c", "b"]
        await watch.aclose()

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "garbage", [b"", b"\xff", b"[]", b'{"horizon": 1000000, "pruned": 0, "at": 0}']
)
def test_a_foreign_horizon_message_ends_no_watch_and_is_replaced(
    tmp_path: Path, horizons_count_as_changes: None, garbage: bytes
) -> None:
    """It stopped the feed, and nothing could be read or watched any more, by this process or
    others."""
    clock = ManualClock()

    async def scenario(there: SharedBucket) -> None:
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


def test_a_purged_horizon_is_written_again(tmp_path: Path, horizons_count_as_changes: None) -> None:
    """The sweep expected the message that it knew, found none, and always assumed that another
    process had been faster."""
    clock = ManualClock()

    async def scenario(there: SharedBucket) -> None:
        subject = f"$KEYHOUSE.{there.bucket}.horizon"
        await put(there.engine, *(f"k{number}" for number in range(30)))
        await there.engine.sweep(limit=10)
        await there.js.get_last_msg(f"KV_{there.bucket}", subject)
        assert await value(there.engine, "k0") == b"1"  # it has received it
        await there.api(f"STREAM.PURGE.KV_{there.bucket}", filter=subject)
        for _ in range(2):
            clock.advance(seconds=PRUNE_DELAY_SECONDS)
            await there.engine.sweep(limit=10)
        await there.js.get_last_msg(f"KV_{there.bucket}", subject)

    run(tmp_path, scenario, clock=clock, changes_kept=10)


def test_a_batch_with_an_overwritten_id_fails_alone(tmp_path: Path) -> None:
    """Its outcome cannot be known. It failed with a decoder error, and so did the other commits of
    its group."""
    clock = ManualClock()

    async def scenario(there: SharedBucket) -> None:
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


def test_batch_ids_are_pruned_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock()

    async def scenario(there: SharedBucket) -> None:
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


def test_a_bucket_is_readable_again_after_a_feed_interruption(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with shared_bucket(tmp_path) as there:
            await put(there.engine, "a")
            kv = await there.kv()
            for number in range(5):
                for bucket in there.engine.buckets.values():
                    bucket.on_disconnect()
                await kv.put("b", b"%d" % number)

                async def seen(expected: bytes = b"%d" % number) -> bool:
                    return await value(there.engine, "b") == expected

                await until(seen)

    asyncio.run(scenario())
