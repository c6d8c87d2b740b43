"""Messages of a commit, races between processes, and the server's TTL."""

import asyncio
import time
from pathlib import Path

import nats.js.errors
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Add, Batch, Check, Put, Row
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.jetstream.message import TTL_EXPIRES_MAX, TTL_MARGIN_SECONDS
from keyhouse.limits import EXPIRES_MAX
from tests.engines.support.jetstream_races import Race
from tests.engines.support.jetstream_rows import ALL, keys_of, put, run, value
from tests.support.nats_servers import SharedBucket, nats_server
from tests.support.nats_servers import name_of as bucket_for
from tests.support.polling import until
from tests.support.seeds import new_seed

# Messages


def test_one_row_is_one_message_and_several_are_one_batch(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "first")

        async def taken(batch: Batch) -> int:
            before = (await there.state()).last_seq
            assert await there.engine.commit("s", batch) is not None
            return (await there.state()).last_seq - before

        assert await taken(Batch(puts=(Put("a", b"1"),))) == 1
        (row,) = await there.engine.read("s", ["a"])
        assert row is not None
        assert await taken(Batch(checks=(Check("a", row.revision),), puts=(Put("a", b"2"),))) == 1
        assert await taken(Batch(deletes=("a",))) == 1
        assert await taken(Batch(adds=(Add("n", 1),))) == 1
        assert (
            await taken(
                Batch(puts=(Put("a", b"1"), Put("b", b"1")), deletes=("c",), adds=(Add("n", 1),))
            )
            == 4
        )
        assert await taken(Batch(puts=(Put("a", b"1"),), id="once")) == 2
        raw = await there.js.get_msg(f"KV_{there.bucket}", (await there.state()).last_seq)
        assert raw.headers is not None
        assert "Nats-Batch-Id" in raw.headers
        await taken(Batch(puts=(Put("z", b"1"),)))
        raw = await there.js.get_msg(f"KV_{there.bucket}", (await there.state()).last_seq)
        assert "Nats-Batch-Id" not in (raw.headers or {})

    run(tmp_path, scenario)


def test_a_checked_row_is_not_written(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        guard = await put(there.engine, "guard")
        for number in range(3):
            batch = Batch(
                checks=(Check("guard", guard), Check("none", None)), puts=(Put(f"k{number}", b"1"),)
            )
            assert await there.engine.commit("s", batch) is not None
        assert await there.engine.read("s", ["guard"]) == [Row("guard", b"1", guard)]
        state = await there.state()
        assert state.messages == 5, (
            "the conditions are carried by one message, which replaces itself"
        )
        assert await keys_of(await there.kv()) == ["guard", "k0", "k1", "k2"]

    run(tmp_path, scenario)


def test_more_checks_than_batch_messages_are_enforced(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        keys = [f"k{number:04d}" for number in range(900)]
        first = await put(there.engine, *keys)
        checks = tuple(Check(key, first) for key in keys) + tuple(
            Check(f"no{number}", None) for number in range(600)
        )
        assert (
            await there.engine.commit("s", Batch(checks=checks, puts=(Put("a", b"1"),))) is not None
        )
        await put(there.engine, keys[500])
        assert await there.engine.commit("s", Batch(checks=checks, puts=(Put("a", b"2"),))) is None
        assert await value(there.engine, "a") == b"1"

    run(tmp_path, scenario)


def test_a_commit_of_the_declared_maximum_size_succeeds(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        limit = there.engine.capabilities.commit_bytes_max
        large = b'"' + b"x" * (limit // 50 - 100) + b'"'
        keys = [f"k{number:02d}" for number in range(50)]
        revision = await put(there.engine, *keys, value=large)
        page = await there.engine.scan("s", ALL, limit=100)
        assert [(row.key, row.revision, row.value == large) for row in page.rows] == [
            (k, revision, True) for k in keys
        ]

    run(tmp_path, scenario)


def test_the_loser_of_a_race_between_processes_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process commits after this commit was planned and before it is sent."""

    async def scenario(there: SharedBucket) -> None:
        guard = await put(there.engine, "guard", "a")
        other = JetstreamEngine.open(there.url)
        assert await value(other, "guard") == b"1"
        assert there.engine.connection is not None
        request = there.engine.connection.request
        raced = False

        async def late(messages, **options):  # type: ignore[no-untyped-def]
            nonlocal raced
            if not raced and messages[-1].subject.startswith("$KV."):
                raced = True
                await put(other, "guard", value=b"2")
            return await request(messages, **options)

        monkeypatch.setattr(there.engine.connection, "request", late)
        before = (await there.state()).last_seq
        batch = Batch(
            checks=(Check("guard", guard),),
            puts=(Put("a", b"3"), Put("b", b"3")),
            adds=(Add("n", 1),),
        )
        assert await there.engine.commit("s", batch) is None
        assert raced
        assert (await there.state()).last_seq == before + 1
        assert [await value(there.engine, key) for key in ("a", "b", "n")] == [b"1", None, None]
        raced = False
        assert (
            await there.engine.commit("s", Batch(puts=(Put("guard", b"4"),), adds=(Add("n", 1),)))
            is not None
        )
        assert raced, "without a check the commit is planned again, and comes through"
        assert [await value(there.engine, key) for key in ("guard", "n")] == [b"4", b"1"]
        await other.close()

    run(tmp_path, scenario)


def test_racing_engines_lose_no_update_and_no_check(tmp_path: Path) -> None:
    seed = new_seed()
    url = f"{nats_server().url}/?bucket={bucket_for(tmp_path)}&sync=always"

    async def scenario() -> None:
        assert not await Race(url, seed).faults()

    asyncio.run(scenario())


def test_a_read_sees_commits_acknowledged_to_another_process(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        other = JetstreamEngine.open(there.url)
        for number in range(200):
            await put(there.engine, "a", value=b"%d" % number)
            assert await value(other, "a") == b"%d" % number
        await other.close()

    run(tmp_path, scenario)


def test_mirror_reads_see_own_writes(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        other = JetstreamEngine.open(there.url)
        for number in range(100):
            await put(there.engine, "a", value=b"%d" % number)
            assert await value(there.engine, "a") == b"%d" % number

        async def seen() -> bool:
            return await value(other, "a") == b"99"

        await until(seen)
        await other.close()

    run(tmp_path, scenario, more="&reads=mirror")


# Time to live


def test_the_server_ttl_ends_after_the_expiry(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        expires = there.engine.clock.now() + 5_000
        await put(there.engine, "a", "b", expires=expires)
        left = max(0, expires - there.engine.clock.now()) // 1_000
        await put(there.engine, "c", expires=there.engine.clock.now() - 5_000)
        await put(there.engine, "d")
        headers = [
            (await there.js.get_last_msg(f"KV_{there.bucket}", f"$KV.{there.bucket}.{key}")).headers
            for key in "acd"
        ]
        assert headers[0] is not None and headers[1] is not None and headers[2] is not None
        assert headers[0]["Keyhouse-Expires"] == str(expires)
        assert left <= int(headers[0]["Nats-TTL"]) - TTL_MARGIN_SECONDS <= 5
        assert headers[1]["Nats-TTL"] == str(TTL_MARGIN_SECONDS)
        assert "Nats-TTL" not in headers[2]

    run(tmp_path, scenario)


def test_an_expiry_beyond_the_server_range_is_sent_without_a_ttl(tmp_path: Path) -> None:
    """The server adds the TTL to its clock in 63-bit nanoseconds. One that ended after 2262
    overflowed into the past, and the server dropped rows that had just been acknowledged."""

    async def scenario(there: SharedBucket) -> None:
        for expires in (TTL_EXPIRES_MAX, TTL_EXPIRES_MAX + 1, EXPIRES_MAX):
            await put(there.engine, "a", expires=expires)
            raw = await there.js.get_last_msg(f"KV_{there.bucket}", f"$KV.{there.bucket}.a")
            assert raw.headers is not None
            assert raw.headers["Keyhouse-Expires"] == str(expires)
            ttl = raw.headers.get("Nats-TTL")
            assert (ttl is None) == (expires > TTL_EXPIRES_MAX)
            assert ttl is None or time.time_ns() + int(ttl) * 1_000_000_000 < 2**63

    run(tmp_path, scenario)


def test_a_manual_clock_leaves_expiry_to_the_sweep(tmp_path: Path) -> None:
    clock = ManualClock(1_000)

    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a", expires=2_000)
        raw = await there.js.get_last_msg(f"KV_{there.bucket}", f"$KV.{there.bucket}.a")
        assert raw.headers is not None
        assert "Nats-TTL" not in raw.headers
        clock.set(2_000)
        assert await value(there.engine, "a") is None
        assert (await (await there.kv()).get("a")).value == b"1"
        assert await there.engine.sweep(limit=10) == 1
        with pytest.raises(nats.js.errors.KeyNotFoundError):
            await (await there.kv()).get("a")

    run(tmp_path, scenario, clock=clock)
