"""Erasing one space of a bucket: other spaces do not notice, other processes learn of it."""

import asyncio
from pathlib import Path

import pytest
from nats.js.api import KeyValueConfig

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Put
from keyhouse.engines.jetstream import JetstreamEngine, bucket, sweep
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.feed import PRUNE_DELAY_SECONDS
from keyhouse.engines.jetstream.layout import RowKey, digest_of
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.mirror import Mirror
from keyhouse.engines.jetstream.value_cache import ValueCache
from keyhouse.errors import UnknownOutcomeError
from keyhouse.store import FORGET_KEY, forget
from keyhouse.store.jobs.erase_space import resume_forget
from keyhouse.testing.conformance.harness import step
from tests.engines.support.jetstream_rows import ALL, run
from tests.support.nats_servers import SharedBucket

TENANT = "erased-tenant"
OTHER_ROWS = 20_000


async def fill(engine: JetstreamEngine, space: str, rows: int) -> None:
    for start in range(0, rows, 500):
        numbers = range(start, min(start + 500, rows))
        puts = tuple(Put(f"k{number:05d}", b'"%d"' % number) for number in numbers)
        assert await engine.commit(space, Batch(puts=puts, id=f"fill {start}")) is not None


async def subjects(there: SharedBucket) -> list[str]:
    """List the subjects of all messages that the stream has."""
    info = await there.api(f"STREAM.INFO.KV_{there.bucket}", subjects_filter=">")
    return sorted(info["state"].get("subjects", {}))


async def consumers(there: SharedBucket) -> list[str]:
    listed = await there.api(f"CONSUMER.NAMES.KV_{there.bucket}")
    return sorted(listed["consumers"])


async def keys(engine: JetstreamEngine, space: str) -> list[str]:
    page = await engine.scan(space, ALL, limit=1_000, keys_only=True)
    return [row.key for row in page.rows]


def test_no_mirror_is_loaded_again_when_one_of_many_spaces_is_erased(tmp_path: Path) -> None:
    """Erasing a tenant loaded the whole bucket again: the requests of all others waited for it.

    A mirror that is loaded again has a new consumer.
    """

    async def scenario(there: SharedBucket) -> None:
        await fill(there.engine, "others", OTHER_ROWS)
        await fill(there.engine, TENANT, 100)
        other = JetstreamEngine.open(there.url)
        assert len(await keys(other, TENANT)) == 100
        before = await consumers(there)
        mirrors = [engine.buckets[there.bucket].mirror for engine in (there.engine, other)]
        assert len(before) == 2, "one for each process"
        assert await forget(there.engine, TENANT, watch_seconds=0) == 100
        for engine, mirror in zip((there.engine, other), mirrors, strict=True):
            assert await keys(engine, TENANT) == []
            assert len(await keys(engine, "others")) == 1_000
            assert engine.buckets[there.bucket].mirror is mirror
        assert await consumers(there) == before
        assert not [subject for subject in await subjects(there) if TENANT in subject]
        assert len(await subjects(there)) == OTHER_ROWS + OTHER_ROWS // 500 + 1
        await other.close()

    run(tmp_path, scenario, space=None)


def test_nothing_of_a_space_stays_in_a_bucket_with_history(tmp_path: Path) -> None:
    """A bucket of another program may keep earlier values of a key."""

    async def scenario(there: SharedBucket) -> None:
        await there.js.create_key_value(KeyValueConfig(there.bucket, history=5))
        for _ in range(4):
            await fill(there.engine, TENANT, 10)
        await fill(there.engine, "others", 10)
        other = JetstreamEngine.open(there.url)
        assert len(await keys(other, TENANT)) == 10
        await forget(there.engine, TENANT, watch_seconds=0)
        assert not [subject for subject in await subjects(there) if TENANT in subject]
        for engine in (there.engine, other):
            assert await keys(engine, TENANT) == []
            assert len(await keys(engine, "others")) == 10
        await other.close()

    run(tmp_path, scenario, space=None)


class Stopped(Exception):
    """The process was killed at this request."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_an_erasure_killed_at_every_request_is_seen_alike_by_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    request = Connection.request
    left = -1

    async def request_or_stop(self: Connection, *arguments: object, **options: object) -> object:
        nonlocal left
        if self is not stopped:
            return await request(self, *arguments, **options)  # type: ignore[arg-type]
        left -= 1
        if left < 0 and not after:
            raise Stopped
        reply = await request(self, *arguments, **options)  # type: ignore[arg-type]
        if left < 0:
            raise Stopped
        return reply

    stopped: Connection | None = None

    async def scenario(there: SharedBucket) -> None:
        nonlocal left, stopped
        clock = there.engine.clock
        assert isinstance(clock, ManualClock)
        resumed = finished = 0
        for at in range(200):
            tenant = f"{TENANT}-{at}"
            await fill(there.engine, tenant, 3)
            victim = JetstreamEngine.open(there.url, clock=clock)
            assert len(await keys(victim, tenant)) == 3
            stopped, left = victim.connection, at
            try:
                await forget(victim, tenant, watch_seconds=0)
                finished += 1
            except (Stopped, UnknownOutcomeError):  # the second from a commit
                pass
            stopped = None
            await victim.close()
            [mark] = await there.engine.read(tenant, [FORGET_KEY])
            if mark is not None:
                clock.advance(seconds=61)
                assert (await resume_forget(there.engine, tenant, watch_seconds=0))[0]
                resumed += 1
            if mark is not None or await keys(there.engine, tenant) == []:
                assert await keys(there.engine, tenant) == []
                later = JetstreamEngine.open(there.url, clock=clock)
                assert await keys(later, tenant) == []
                await later.close()
                puts = (Put("k00001", b"2"),)
                assert await there.engine.commit(tenant, Batch(puts=puts, id="fill 0")) is not None
                assert await keys(there.engine, tenant) == ["k00001"]
            await forget(there.engine, tenant, watch_seconds=0)
            assert not [each for each in await subjects(there) if f".{tenant}." in each]
            if finished:
                break
        assert finished, "no run was long enough"
        assert resumed > 5, "it was killed at each of the steps"

    monkeypatch.setattr(Connection, "request", request_or_stop)
    run(tmp_path, scenario, space=None, clock=ManualClock())


def test_a_process_that_was_away_learns_of_an_erasure(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await fill(there.engine, TENANT, 10)
        await fill(there.engine, "others", 10)
        other = JetstreamEngine.open(there.url)
        assert len(await keys(other, TENANT)) == 10
        bucket = other.buckets[there.bucket]
        mirror = bucket.mirror
        await bucket.feed.stop()
        await there.engine.forget(TENANT)
        bucket.feed.start()
        assert await keys(other, TENANT) == []
        assert bucket.mirror is mirror
        await other.close()

    run(tmp_path, scenario, space=None)


def test_the_sweep_prunes_the_announcement_of_an_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "HORIZONS_KEPT", 0)
    clock = ManualClock()

    async def scenario(there: SharedBucket) -> None:
        await fill(there.engine, TENANT, 3)
        await there.engine.forget(TENANT)
        announcement = f"$KEYHOUSE.{there.bucket}.erased.{digest_of(TENANT)}"
        assert announcement in await subjects(there)
        await fill(there.engine, "others", 40)
        for _ in range(3):
            await there.engine.sweep(limit=10)
            clock.advance(seconds=PRUNE_DELAY_SECONDS)
        assert announcement not in await subjects(there)

    run(tmp_path, scenario, space=None, clock=clock, changes_kept=10)


def test_a_foreign_announcement_erases_nothing(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await fill(there.engine, TENANT, 3)
        subject = f"$KEYHOUSE.{there.bucket}.erased."
        for data in (b"", b"\xff", b"[]", b'{"upto": "all"}'):
            await there.js.publish(subject + digest_of(TENANT), data)
        await there.js.publish(subject + "unknown", b'{"upto": 1000}')
        assert len(await keys(there.engine, TENANT)) == 3

    run(tmp_path, scenario, space=None)


def test_a_watch_of_the_erased_space_delivers_what_is_written_later(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await fill(there.engine, TENANT, 3)
        other = JetstreamEngine.open(there.url)
        caught_up = asyncio.Event()
        watch = other.watch(TENANT, ALL, caught_up=lambda _: caught_up.set())
        waiting = asyncio.ensure_future(step(watch))
        await caught_up.wait()
        await there.engine.forget(TENANT)
        revision = await there.engine.commit(TENANT, Batch(puts=(Put("new", b"1"),)))
        change = await waiting
        assert (change.key, change.revision) == ("new", revision)
        await watch.aclose()
        await other.close()

    run(tmp_path, scenario, space=None)


def test_a_process_sees_that_a_bucket_of_one_space_was_created_again(tmp_path: Path) -> None:
    """The new stream counts from 1 again: the mirror of the old one counted as up to date."""

    async def scenario(there: SharedBucket) -> None:
        await fill(there.engine, "s", 30)
        other = JetstreamEngine.open(there.url)
        assert len(await keys(other, "s")) == 30
        await there.engine.forget("s")
        await there.engine.commit("s", Batch(puts=(Put("new", b"1"),)))
        assert await keys(other, "s") == ["new"]
        await other.close()

    run(tmp_path, scenario)


def test_another_process_reads_at_once_after_the_bucket_of_a_space_was_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asked the server twice, a second apart, although a single one is certain."""

    async def scenario(there: SharedBucket) -> None:
        await fill(there.engine, "s", 30)
        other = JetstreamEngine.open(there.url)
        assert len(await keys(other, "s")) == 30
        await there.engine.forget("s")
        monkeypatch.setattr(bucket, "BEHIND_SECONDS", 3_600.0)
        async with asyncio.timeout(30):
            assert await keys(other, "s") == []
        monkeypatch.undo()
        await other.close()

    run(tmp_path, scenario)


# The mirror


def mirror_of(*messages: tuple[int, str, str, int]) -> Mirror:
    """Return a serving mirror that received these: sequence, space, key, how many follow."""
    mirror = Mirror(ValueCache(100_000))
    mirror.finish_loading()
    for message in messages:
        deliver(mirror, *message)
    return mirror


def deliver(mirror: Mirror, sequence: int, space: str, key: str, following: int = 0) -> None:
    row = Entry(sequence, sequence + following, expires=sequence)
    mirror.deliver(RowKey(space, key), row, b"1")


def rows_of(mirror: Mirror, space: str) -> list[str]:
    return [key for key, _ in mirror.scan(space, ALL, reverse=False)]


def test_an_erasure_leaves_later_rows_and_other_spaces() -> None:
    mirror = mirror_of((1, "s", "b", 0), (2, "t", "b", 0), (3, "s", "c", 0))
    mirror.deliver(RowKey("s", "d"), Entry(4, 4, is_tombstone=True), b"")
    deliver(mirror, 5, "s", "a")
    mirror.erase(digest_of("s"), 4)
    assert (rows_of(mirror, "s"), rows_of(mirror, "t")) == (["a"], ["b"])
    assert mirror.entry("s", "b") is None
    assert mirror.values.get(1) is None
    assert mirror.tombstones(100) == []
    assert {row_key for row_key, _ in mirror.expired(100, 10)} == {("t", "b"), ("s", "a")}
    mirror.erase(digest_of("s"), 6)
    assert mirror.spaces(0) == ["t"]
    deliver(mirror, 7, "s", "z")
    assert rows_of(mirror, "s") == ["z"]


def test_an_erasure_reaches_commits_that_have_arrived_in_part() -> None:
    mirror = mirror_of((1, "s", "a", 0), (2, "s", "b", 2), (3, "t", "b", 1))
    mirror.erase(digest_of("s"), 2)
    mirror.advance(4)
    assert (rows_of(mirror, "s"), rows_of(mirror, "t")) == ([], ["b"])


def test_an_erasure_reaches_a_mirror_that_is_loading() -> None:
    mirror = Mirror(ValueCache(100_000))
    deliver(mirror, 1, "s", "b")
    deliver(mirror, 3, "s", "a")
    mirror.erase(digest_of("s"), 2)
    mirror.finish_loading()
    assert rows_of(mirror, "s") == ["a"]
