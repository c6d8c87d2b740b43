"""Specific to JetStream: buckets shared with other programs, names, and opening."""

import asyncio
import json
import re
import time
from pathlib import Path

import nats.js.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.engine import Add, Batch, Change, Check, Put, Row
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.jetstream.layout import (
    BucketNames,
    Layout,
    RowKey,
    bucket_of,
    key_of,
    name_of,
)
from keyhouse.engines.jetstream.settings import parse
from keyhouse.engines.registry import open_engine
from keyhouse.errors import FullError, LimitError, UsageError
from keyhouse.testing.conformance.harness import step
from tests.engines.support.jetstream_rows import ALL, keys_of, put, run, value
from tests.support.nats_servers import SharedBucket
from tests.support.polling import until

# Other programs


def test_any_client_reads_rows_as_plain_json(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "ns/default/playlists/index", "a.b", value=b'{"n": [1, 2]}')
        kv = await there.kv()
        for key in ("ns/default/playlists/index", "a.b"):
            entry = await kv.get(key)
            assert entry.value is not None
            assert json.loads(entry.value) == {"n": [1, 2]}
        assert await keys_of(kv) == ["a.b", "ns/default/playlists/index"]

    run(tmp_path, scenario)


def test_any_client_sees_deleted_rows_as_deleted(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a", "b", "c")
        await there.engine.commit("s", Batch(deletes=("a",)))
        await there.engine.commit("s", Batch(deletes=("b",), puts=(Put("d", b"1"),)))
        kv = await there.kv()
        for key in ("a", "b"):
            with pytest.raises(nats.js.errors.KeyNotFoundError):
                await kv.get(key)
        assert await keys_of(kv) == ["c", "d"]

    run(tmp_path, scenario)


def test_rows_of_other_clients_can_be_read_checked_and_watched(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        start = await put(there.engine, "ours")
        kv = await there.kv()
        revision = await kv.put("theirs", b"[1]")
        assert await there.engine.read("s", ["theirs"]) == [Row("theirs", b"[1]", revision)]
        watch = there.engine.watch("s", ALL, since=start)
        assert await step(watch) == Change("theirs", revision, b"[1]")
        batch = Batch(checks=(Check("theirs", revision),), puts=(Put("theirs", b"[2]"),))
        second = await there.engine.commit("s", batch)
        assert second is not None
        assert await there.engine.commit("s", batch) is None
        assert await step(watch) == Change("theirs", second, b"[2]")
        with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
            await kv.update("theirs", b"[3]", last=revision)
        await kv.delete("theirs")
        assert await value(there.engine, "theirs") is None
        assert (await step(watch)).value is None
        await kv.purge("ours")
        assert (await there.engine.scan("s", ALL, limit=10)).rows == []
        await watch.aclose()

    run(tmp_path, scenario)


def test_an_entry_that_the_server_expired_is_absent(tmp_path: Path) -> None:
    """The driver returns such an entry with the value None, and cannot create over it."""

    async def scenario(there: SharedBucket) -> None:
        start = await put(there.engine, "other")
        kv = await there.kv()
        created_at = time.monotonic()
        await kv.create("code", b'"x"', msg_ttl=1)
        found = await value(there.engine, "code")
        assert found == b'"x"' or time.monotonic() > created_at + 1

        async def is_gone() -> bool:
            return await value(there.engine, "code") is None

        await until(is_gone)
        assert (await kv.get("code")).value is None
        watch = there.engine.watch("s", ALL, since=start)
        assert (await step(watch)).value is None
        await watch.aclose()
        batch = Batch(checks=(Check("code", None),), puts=(Put("code", b'"y"'),))
        assert await there.engine.commit("s", batch) is not None
        assert await value(there.engine, "code") == b'"y"'

    run(tmp_path, scenario)


def test_a_bucket_of_another_program_is_used_as_it_is(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        kv = await there.js.create_key_value(bucket=there.bucket, history=5, description="theirs")
        await kv.put("a", b"1")
        assert await value(there.engine, "a") == b"1"
        before = (await there.js.stream_info(f"KV_{there.bucket}")).config
        assert before.subjects == [f"$KV.{there.bucket}.>"], "reading changes nothing"
        await put(there.engine, "a", "b", value=b"2")
        after = (await there.js.stream_info(f"KV_{there.bucket}")).config
        assert after.max_msgs_per_subject == 5
        assert after.description == "theirs"
        assert [entry.value for entry in await kv.history("a")] == [b"1", b"2"]
        assert await there.engine.commit("s", Batch(adds=(Add("a", 5),))) is not None
        assert (await kv.get("a")).value == b"7"

    run(tmp_path, scenario)


def test_a_full_bucket_raises_full_error_until_space_is_freed(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await there.js.create_key_value(bucket=there.bucket, max_bytes=10_000)
        await put(there.engine, "a", value=b'"' + b"x" * 5_000 + b'"')
        for keys in (("b",), ("b", "c")):
            with pytest.raises(FullError):
                await put(there.engine, *keys, value=b'"' + b"x" * 6_000 + b'"')
        assert [row.key for row in (await there.engine.scan("s", ALL, limit=10)).rows] == ["a"]
        await there.engine.commit("s", Batch(deletes=("a",)))
        await put(there.engine, "b", value=b'"' + b"x" * 6_000 + b'"')
        assert await value(there.engine, "a") is None

    run(tmp_path, scenario)


def test_a_value_above_the_bucket_limit_is_rejected(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await there.js.create_key_value(bucket=there.bucket, max_value_size=1_000)
        for keys in (("a",), ("a", "b")):
            with pytest.raises(LimitError):
                await put(there.engine, *keys, value=b"x" * 2_000)
        await put(there.engine, "a", "b")

    run(tmp_path, scenario)


def test_a_foreign_spelling_of_a_key_is_not_a_row(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a")
        for strange in ("==a", "==a=2", "==a=2e", "é", "a..b"):
            await there.js.publish(f"$KV.{there.bucket}.{strange.replace('..', '.=.')}", b"1")
        page = await there.engine.scan("s", ALL, limit=10)
        assert [row.key for row in page.rows] == ["a", "a.=.b"]

    run(tmp_path, scenario)


# Keys


@pytest.mark.parametrize(
    "key", ["a..b", ".", "..", ">", "*", "a.>", "a.*", "$KV", " ", "a\r\nPUB x 1\r\n"]
)
def test_a_key_with_wildcards_affects_only_its_own_row(tmp_path: Path, key: str) -> None:
    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a", "a.x", "b")
        await put(there.engine, key, value=b"2")
        assert await value(there.engine, key) == b"2"
        await there.engine.commit("s", Batch(deletes=(key,)))
        page = await there.engine.scan("s", ALL, limit=10)
        assert [(row.key, row.value) for row in page.rows] == [
            ("a", b"1"),
            ("a.x", b"1"),
            ("b", b"1"),
        ]
        assert await keys_of(await there.kv()) == ["a", "a.x", "b"]

    run(tmp_path, scenario)


@given(st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text))
def test_every_key_maps_to_a_valid_nats_name_and_back(key: str) -> None:
    try:
        key.encode()
    except UnicodeEncodeError:
        return
    name = name_of(key)
    assert re.fullmatch(r"[-/_=.a-zA-Z0-9]+", name)
    assert not name.startswith(".")
    assert not name.endswith(".")
    assert ".." not in name
    assert key_of(name) == key


@given(st.text(alphabet="=.aA2E0", min_size=1, max_size=12))
def test_every_name_maps_to_at_most_one_key(name: str) -> None:
    key = key_of(name)
    assert key is None or name_of(key) == name


def test_a_key_in_the_nats_alphabet_is_not_escaped() -> None:
    for key in ("ns/default/otp/a=3Ab", "a.b-c_d/e=", "0"):
        assert name_of(key) == key
    assert name_of("a:b") == "==a=3Ab"
    assert name_of("==a") == "===3D=3Da"


def test_the_longest_key_of_the_longest_space_fits(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        space, keys = "é" * 127, ["\U0001f600" * 256, "é" * 511]
        revision = await there.engine.commit(
            space, Batch(puts=tuple(Put(key, b"1") for key in keys))
        )
        assert revision is not None
        page = await there.engine.scan(space, ALL, limit=10)
        assert page.rows == [Row(key, b"1", revision) for key in sorted(keys)]
        assert (
            await there.engine.commit(
                space, Batch(checks=(Check(keys[0], revision),), deletes=(keys[1],))
            )
            is not None
        )
        assert await there.engine.read(space, keys) == [Row(keys[0], b"1", revision), None]

    run(tmp_path, scenario, space=None)


# Spaces


def test_a_valid_bucket_name_is_used_for_the_space() -> None:
    assert bucket_of("", "kryten_playlist_auth") == "kryten_playlist_auth"
    assert bucket_of("x-", "a") == "x-a"


def test_no_two_spaces_share_a_bucket_name() -> None:
    spaces = ["a/b", "a.b", "ab", "a b", "é", "e\u0301", "x" * 255, "x" * 254, "a--" + "0" * 32]
    spaces += [bucket_of("", space) for space in spaces]
    buckets = [bucket_of("", space) for space in dict.fromkeys(spaces)]
    assert len(set(buckets)) == len(buckets)
    assert all(re.fullmatch(r"[-_a-zA-Z0-9]{1,128}", bucket) for bucket in buckets)


def test_spaces_of_one_bucket_are_the_first_token_of_its_keys(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        for space in ("plain", "a.b", "a/b"):
            await there.engine.commit(space, Batch(puts=(Put("k", b"1"),)))
        kv = await there.kv()
        assert await keys_of(kv) == ["a=2Eb.k", "a=2Fb.k", "plain.k"]
        assert [space async for space in there.engine.spaces()] == ["a.b", "a/b", "plain"]

    run(tmp_path, scenario, space=None)


def test_subjects_map_back_to_row_keys() -> None:
    many, one = BucketNames("media"), BucketNames("media", "s")
    for place in (RowKey("s", "a"), RowKey("s", "a:b"), RowKey("s", "a..b")):
        assert many.read(many.row(*place)) == place
        assert one.read(one.row(*place)) == place
    for subject in (
        "$KV.media.nospace",
        "$KV.media..x",
        "$KV.media.=.a",
        "$KV.other.s.a",
        "$KEYHOUSE.media.check",
    ):
        assert many.read(subject) is None


# Opening


def test_an_engine_is_opened_by_its_url(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        engine = await open_engine(there.url)
        assert isinstance(engine, JetstreamEngine)
        assert engine.capabilities.durable
        await put(engine, "a")
        assert await value(there.engine, "a") == b"1"
        await engine.close()

    run(tmp_path, scenario)


def test_durable_follows_the_sync_setting() -> None:
    assert not JetstreamEngine.open("nats://localhost").capabilities.durable
    assert JetstreamEngine.open("nats://localhost/?sync=always").capabilities.durable


def test_a_url_is_parsed_into_servers_and_settings() -> None:
    settings = parse("nats://me:secret@a:1,b:2/?prefix=x-&replicas=3&reads=mirror&values=1000")
    assert settings.servers == ("nats://me:secret@a:1", "nats://me:secret@b:2")
    assert settings.layout == Layout(None, "x-")
    assert (settings.replicas, settings.fresh_reads, settings.values_bytes_max) == (3, False, 1_000)
    assert parse("nats://a").layout == Layout("keyhouse")
    assert parse("nats://a/?prefix=").layout == Layout(None, "")


@pytest.mark.parametrize(
    "url",
    [
        "nats://",
        "nats://a/path",
        "nats://a/?buckets=x",
        "nats://a/?bucket=x&prefix=y",
        "nats://a/?bucket=a.b",
        "nats://a/?bucket=",
        "nats://a/?bucket=" + "x" * 41,
        "nats://a/?replicas=2",
        "nats://a/?replicas=x",
        "nats://a/?sync=often",
        "nats://a/?reads=old",
    ],
)
def test_an_invalid_nats_url_is_rejected(url: str) -> None:
    with pytest.raises(UsageError):
        asyncio.run(open_engine(url))


def test_a_password_is_not_shown() -> None:
    with pytest.raises(UsageError) as refusal:
        asyncio.run(open_engine("nats://me:secret@a/path"))
    assert "secret" not in str(refusal.value)


def test_a_bucket_with_another_number_of_replicas_is_rejected(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a")
        other = JetstreamEngine.open(there.url + "&replicas=3")
        with pytest.raises(UsageError, match="replicas"):
            await put(other, "b")
        await other.close()

    run(tmp_path, scenario)


def test_an_empty_space_name_is_rejected(tmp_path: Path) -> None:
    async def scenario(there: SharedBucket) -> None:
        with pytest.raises(UsageError):
            await there.engine.read("", ["a"])

    run(tmp_path, scenario)
