"""Buckets that another program created: watching changes nothing in them."""

import asyncio
from pathlib import Path
from typing import Any

from nats.js import JetStreamContext

from keyhouse.engine import Batch, Change, Put
from keyhouse.engines.jetstream import JetstreamEngine
from tests.engines.support.jetstream_rows import ALL, put, run
from tests.support.nats_servers import SharedBucket, name_of, nats_server
from tests.support.polling import until


async def config_of(js: JetStreamContext, bucket: str) -> Any:
    return (await js.stream_info(f"KV_{bucket}")).config


async def next_of(watch: Any) -> Change:
    async with asyncio.timeout(30):
        change: Change = await anext(watch)
        return change


def test_a_watch_of_a_foreign_bucket_does_not_change_its_configuration(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        kv = await there.js.create_key_value(bucket=there.bucket, history=1)
        await kv.put("a", b"1")
        before = await config_of(there.js, there.bucket)
        watch = there.engine.watch("s", ALL, since=0)
        first = await next_of(watch)
        assert (first.key, first.value) == ("a", b"1")
        await kv.put("b", b"2")
        assert (await next_of(watch)).key == "b"
        await kv.delete("a")
        assert (await next_of(watch)).value is None
        await watch.aclose()
        assert await config_of(there.js, there.bucket) == before
        assert await there.engine.sweep(limit=10) == 0
        assert await config_of(there.js, there.bucket) == before, "nor does a sweep"

    run(tmp_path, scenario)


def test_a_watch_creates_a_missing_bucket_for_other_programs(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        has_started = asyncio.Event()
        watch = there.engine.watch("s", ALL, caught_up=lambda _: has_started.set())
        first = asyncio.ensure_future(next_of(watch))
        await has_started.wait()
        kv = await there.js.key_value(there.bucket)
        await kv.put("a", b"1")
        assert (await first).key == "a"
        await watch.aclose()

    run(tmp_path, scenario)


def test_a_watch_goes_across_the_first_commit_in_a_foreign_bucket(tmp_path: Path) -> None:
    """The commit, here of another engine, adds subjects to the stream."""

    async def scenario(there: SharedBucket) -> None:
        kv = await there.js.create_key_value(bucket=there.bucket, history=1)
        await kv.put("a", b"1")
        watch = there.engine.watch("s", ALL, since=0)
        assert (await next_of(watch)).key == "a"
        other = JetstreamEngine.open(there.url)
        await put(other, "b")
        assert (await next_of(watch)).key == "b"
        again = there.engine.watch("s", ALL, since=0)
        assert [(await next_of(again)).key for _ in range(2)] == ["a", "b"]
        await again.aclose()
        await watch.aclose()
        await other.close()

    run(tmp_path, scenario)


def test_spaces_lists_a_bucket_of_the_prefix_that_another_program_filled(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        prefix = name_of(tmp_path / "prefix") + "-"
        await there.js.create_key_value(bucket=f"{prefix}empty")
        kv = await there.js.create_key_value(bucket=f"{prefix}theirs")
        await kv.put("a", b"1")
        engine = JetstreamEngine.open(f"{nats_server().url}/?prefix={prefix}")
        await engine.commit("ours", Batch(puts=(Put("k", b"1"),)))
        assert [space async for space in engine.spaces()] == ["ours", "theirs"]
        before = await config_of(there.js, f"{prefix}theirs")
        await engine.sweep(limit=10)
        assert await config_of(there.js, f"{prefix}theirs") == before
        await engine.close()
        every_bucket = JetstreamEngine.open(f"{nats_server().url}/?prefix=")
        assert f"{prefix}theirs" not in [space async for space in every_bucket.spaces()]
        await every_bucket.close()

    run(tmp_path, scenario)


def test_a_subject_that_is_not_utf_8_is_not_a_row(tmp_path: Path) -> None:
    """The client dropped such a message. The consumer's numbers had a gap, so the feed started
    again, and met the message again: the bucket could not be read until it was purged."""

    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a")
        reader, writer = await asyncio.open_connection("127.0.0.1", nats_server().port)
        subject = f"$KV.{there.bucket}.".encode() + b"\xff"
        writer.write(b"CONNECT {}\r\nPUB %b 1\r\n1\r\nPING\r\n" % subject)
        async with asyncio.timeout(30):
            await reader.readuntil(b"PONG\r\n")
        writer.close()

        async def is_stored() -> bool:
            return (await there.state()).messages == 2

        await until(is_stored)
        await put(there.engine, "b")
        other = JetstreamEngine.open(there.url)
        for engine in (there.engine, other):
            assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == ["a", "b"]
        await other.close()

    run(tmp_path, scenario)
