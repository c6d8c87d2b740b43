"""What is JetStream's own: buckets that other programs share, how many messages a commit is, what things are called."""

import asyncio
import json
import random
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import nats.js.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.js.kv import KeyValue

from keyhouse.clock import Clock, ManualClock
from keyhouse.engine import Add, Batch, Change, Check, Put, Row, Span
from keyhouse.engines.jetstream import JetstreamEngine
from keyhouse.engines.jetstream.layout import Layout, Names, Place, bucket_of, key_of, name_of
from keyhouse.engines.jetstream.message import TTL_MARGIN_SECONDS
from keyhouse.engines.jetstream.settings import parse
from keyhouse.engines.registry import open_engine
from keyhouse.errors import FullError, LimitError, UsageError
from keyhouse.testing.conformance.stage import step
from tests.engines.nats_races import Race
from tests.engines.nats_servers import Beside, beside, nats_server
from tests.engines.nats_servers import name_of as bucket_for

ALL = Span()


def run(
    folder: Path,
    scenario: Callable[[Beside], Awaitable[None]],
    *,
    space: str | None = "s",
    clock: Clock | None = None,
    changes_kept: int = 100_000,
    more: str = "",
) -> None:
    async def main() -> None:
        async with beside(folder, space=space, clock=clock, changes_kept=changes_kept, more=more) as there:
            await scenario(there)

    asyncio.run(main())


async def put(engine: JetstreamEngine, *keys: str, value: bytes = b"1", expires: int | None = None) -> int:
    revision = await engine.commit("s", Batch(puts=tuple(Put(key, value, expires) for key in keys)))
    assert revision is not None
    return revision


async def value(engine: JetstreamEngine, key: str) -> bytes | None:
    (row,) = await engine.read("s", [key])
    return None if row is None else row.value


async def keys_of(kv: KeyValue) -> list[str]:
    """As the driver lists them; on a busy machine it may find none at first, when all came before it had looked."""
    for _ in range(10):
        try:
            return sorted(await kv.keys())
        except nats.js.errors.NoKeysError:
            await asyncio.sleep(0.05)
    return []


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.02)


# Other programs


def test_any_client_reads_our_rows_as_plain_json(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        await put(there.engine, "ns/default/playlists/index", "a.b", value=b'{"n": [1, 2]}')
        kv = await there.kv()
        for key in ("ns/default/playlists/index", "a.b"):
            entry = await kv.get(key)
            assert entry.value is not None
            assert json.loads(entry.value) == {"n": [1, 2]}
        assert await keys_of(kv) == ["a.b", "ns/default/playlists/index"]

    run(tmp_path, scenario)


def test_any_client_sees_what_we_delete_as_deleted(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        await put(there.engine, "a", "b", "c")
        await there.engine.commit("s", Batch(deletes=("a",)))
        await there.engine.commit("s", Batch(deletes=("b",), puts=(Put("d", b"1"),)))
        kv = await there.kv()
        for key in ("a", "b"):
            with pytest.raises(nats.js.errors.KeyNotFoundError):
                await kv.get(key)
        assert await keys_of(kv) == ["c", "d"]

    run(tmp_path, scenario)


def test_we_read_check_and_watch_the_rows_of_any_client(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
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


def test_an_entry_whose_time_has_ended_on_the_server_is_absent(tmp_path: Path) -> None:
    """The driver returns such an entry with the value `None`, and can't create over it."""

    async def scenario(there: Beside) -> None:
        start = await put(there.engine, "other")
        kv = await there.kv()
        await kv.create("code", b'"x"', msg_ttl=1)
        assert await value(there.engine, "code") == b'"x"'
        await asyncio.sleep(1.2)

        async def gone() -> bool:
            return await value(there.engine, "code") is None

        await eventually(gone)
        assert (await kv.get("code")).value is None
        watch = there.engine.watch("s", ALL, since=start)
        assert (await step(watch)).value is None
        await watch.aclose()
        batch = Batch(checks=(Check("code", None),), puts=(Put("code", b'"y"'),))
        assert await there.engine.commit("s", batch) is not None
        assert await value(there.engine, "code") == b'"y"'

    run(tmp_path, scenario)


def test_a_bucket_that_another_program_made_is_used_as_it_is(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
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


def test_a_bucket_that_is_full_says_so_and_takes_more_when_there_is_room(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
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


def test_a_value_larger_than_the_bucket_takes_is_refused(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        await there.js.create_key_value(bucket=there.bucket, max_value_size=1_000)
        for keys in (("a",), ("a", "b")):
            with pytest.raises(LimitError):
                await put(there.engine, *keys, value=b"x" * 2_000)
        await put(there.engine, "a", "b")

    run(tmp_path, scenario)


def test_a_key_that_another_program_spells_as_we_do_not_is_no_row(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        await put(there.engine, "a")
        for strange in ("==a", "==a=2", "==a=2e", "é", "a..b"):
            await there.js.publish(f"$KV.{there.bucket}.{strange.replace('..', '.=.')}", b"1")
        page = await there.engine.scan("s", ALL, limit=10)
        assert [row.key for row in page.rows] == ["a", "a.=.b"]

    run(tmp_path, scenario)


# Keys


@pytest.mark.parametrize("key", ["a..b", ".", "..", ">", "*", "a.>", "a.*", "$KV", " ", "a\r\nPUB x 1\r\n"])
def test_no_key_reaches_beyond_its_row(tmp_path: Path, key: str) -> None:
    async def scenario(there: Beside) -> None:
        await put(there.engine, "a", "a.x", "b")
        await put(there.engine, key, value=b"2")
        assert await value(there.engine, key) == b"2"
        await there.engine.commit("s", Batch(deletes=(key,)))
        page = await there.engine.scan("s", ALL, limit=10)
        assert [(row.key, row.value) for row in page.rows] == [("a", b"1"), ("a.x", b"1"), ("b", b"1")]
        assert await keys_of(await there.kv()) == ["a", "a.x", "b"]

    run(tmp_path, scenario)


@given(st.text(min_size=1, max_size=30).filter(lambda text: "\0" not in text))
def test_every_key_has_a_name_that_nats_allows_and_that_leads_back(key: str) -> None:
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
def test_every_name_has_at_most_one_key(name: str) -> None:
    key = key_of(name)
    assert key is None or name_of(key) == name


def test_a_key_in_the_alphabet_of_nats_keeps_its_name() -> None:
    for key in ("ns/default/otp/a=3Ab", "a.b-c_d/e=", "0"):
        assert name_of(key) == key
    assert name_of("a:b") == "==a=3Ab"
    assert name_of("==a") == "===3D=3Da"


def test_the_longest_key_of_the_longest_space_fits(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        space, keys = "é" * 127, ["\U0001f600" * 256, "é" * 511]
        revision = await there.engine.commit(space, Batch(puts=tuple(Put(key, b"1") for key in keys)))
        assert revision is not None
        page = await there.engine.scan(space, ALL, limit=10)
        assert page.rows == [Row(key, b"1", revision) for key in sorted(keys)]
        assert (
            await there.engine.commit(space, Batch(checks=(Check(keys[0], revision),), deletes=(keys[1],))) is not None
        )
        assert await there.engine.read(space, keys) == [Row(keys[0], b"1", revision), None]

    run(tmp_path, scenario, space=None)


# Spaces


def test_a_space_that_nats_can_call_a_bucket_is_called_so() -> None:
    assert bucket_of("", "kryten_playlist_auth") == "kryten_playlist_auth"
    assert bucket_of("x-", "a") == "x-a"


def test_no_space_takes_the_bucket_of_another() -> None:
    spaces = ["a/b", "a.b", "ab", "a b", "é", "e\u0301", "x" * 255, "x" * 254, "a--" + "0" * 32]
    spaces += [bucket_of("", space) for space in spaces]
    buckets = [bucket_of("", space) for space in dict.fromkeys(spaces)]
    assert len(set(buckets)) == len(buckets)
    assert all(re.fullmatch(r"[-_a-zA-Z0-9]{1,128}", bucket) for bucket in buckets)


def test_spaces_of_one_bucket_are_the_first_token_of_its_keys(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        for space in ("plain", "a.b", "a/b"):
            await there.engine.commit(space, Batch(puts=(Put("k", b"1"),)))
        kv = await there.kv()
        assert await keys_of(kv) == ["a=2Eb.k", "a=2Fb.k", "plain.k"]
        assert [space async for space in there.engine.spaces()] == ["a.b", "a/b", "plain"]

    run(tmp_path, scenario, space=None)


def test_subjects_lead_back_to_their_place() -> None:
    many, one = Names("media"), Names("media", "s")
    for place in (Place("s", "a"), Place("s", "a:b"), Place("s", "a..b")):
        assert many.read(many.row(*place)) == place
        assert one.read(one.row(*place)) == place
    for subject in ("$KV.media.nospace", "$KV.media..x", "$KV.media.=.a", "$KV.other.s.a", "$KEYHOUSE.media.check"):
        assert many.read(subject) is None


# Messages


def test_one_row_is_one_message_and_several_are_one_batch(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
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
        assert await taken(Batch(puts=(Put("a", b"1"), Put("b", b"1")), deletes=("c",), adds=(Add("n", 1),))) == 4
        assert await taken(Batch(puts=(Put("a", b"1"),), id="once")) == 2
        raw = await there.js.get_msg(f"KV_{there.bucket}", (await there.state()).last_seq)
        assert raw.headers is not None
        assert "Nats-Batch-Id" in raw.headers
        await taken(Batch(puts=(Put("z", b"1"),)))
        raw = await there.js.get_msg(f"KV_{there.bucket}", (await there.state()).last_seq)
        assert "Nats-Batch-Id" not in (raw.headers or {})

    run(tmp_path, scenario)


def test_a_row_that_is_checked_and_not_written_is_left_alone(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        guard = await put(there.engine, "guard")
        for number in range(3):
            batch = Batch(checks=(Check("guard", guard), Check("none", None)), puts=(Put(f"k{number}", b"1"),))
            assert await there.engine.commit("s", batch) is not None
        assert await there.engine.read("s", ["guard"]) == [Row("guard", b"1", guard)]
        state = await there.state()
        assert state.messages == 5, "the conditions are carried by one message, which replaces itself"
        assert await keys_of(await there.kv()) == ["guard", "k0", "k1", "k2"]

    run(tmp_path, scenario)


def test_more_checks_than_a_batch_has_messages_hold_or_do_not(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        keys = [f"k{number:04d}" for number in range(900)]
        first = await put(there.engine, *keys)
        checks = tuple(Check(key, first) for key in keys) + tuple(Check(f"no{number}", None) for number in range(600))
        assert await there.engine.commit("s", Batch(checks=checks, puts=(Put("a", b"1"),))) is not None
        await put(there.engine, keys[500])
        assert await there.engine.commit("s", Batch(checks=checks, puts=(Put("a", b"2"),))) is None
        assert await value(there.engine, "a") == b"1"

    run(tmp_path, scenario)


def test_a_commit_of_the_bytes_that_are_declared_is_taken(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        limit = there.engine.capabilities.commit_bytes_max
        large = b'"' + b"x" * (limit // 50 - 100) + b'"'
        keys = [f"k{number:02d}" for number in range(50)]
        revision = await put(there.engine, *keys, value=large)
        page = await there.engine.scan("s", ALL, limit=100)
        assert [(row.key, row.revision, row.value == large) for row in page.rows] == [(k, revision, True) for k in keys]

    run(tmp_path, scenario)


def test_who_comes_second_in_a_race_between_processes_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other commits when ours has been planned, and before it is sent."""

    async def scenario(there: Beside) -> None:
        guard = await put(there.engine, "guard", "a")
        other = JetstreamEngine.open(there.url)
        assert await value(other, "guard") == b"1"
        assert there.engine._wire is not None
        ask = there.engine._wire.ask
        raced = False

        async def late(messages, **options):  # type: ignore[no-untyped-def]
            nonlocal raced
            if not raced and messages[-1].subject.startswith("$KV."):
                raced = True
                await put(other, "guard", value=b"2")
            return await ask(messages, **options)

        monkeypatch.setattr(there.engine._wire, "ask", late)
        before = (await there.state()).last_seq
        batch = Batch(checks=(Check("guard", guard),), puts=(Put("a", b"3"), Put("b", b"3")), adds=(Add("n", 1),))
        assert await there.engine.commit("s", batch) is None
        assert raced
        assert (await there.state()).last_seq == before + 1
        assert [await value(there.engine, key) for key in ("a", "b", "n")] == [b"1", None, None]
        raced = False
        assert await there.engine.commit("s", Batch(puts=(Put("guard", b"4"),), adds=(Add("n", 1),))) is not None
        assert raced, "without a check the commit is planned again, and comes through"
        assert [await value(there.engine, key) for key in ("guard", "n")] == [b"4", b"1"]
        await other.close()

    run(tmp_path, scenario)


def test_engines_that_race_lose_no_update_and_hold_every_check(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    print("seed", seed)
    url = f"{nats_server().url}/?bucket={bucket_for(tmp_path)}&sync=always"

    async def scenario() -> None:
        assert not await Race(url, seed).faults()

    asyncio.run(scenario())


def test_a_read_sees_at_once_what_another_process_was_told(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        other = JetstreamEngine.open(there.url)
        for number in range(200):
            await put(there.engine, "a", value=b"%d" % number)
            assert await value(other, "a") == b"%d" % number
        await other.close()

    run(tmp_path, scenario)


def test_with_reads_from_the_mirror_one_reads_what_one_wrote(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        other = JetstreamEngine.open(there.url)
        for number in range(100):
            await put(there.engine, "a", value=b"%d" % number)
            assert await value(there.engine, "a") == b"%d" % number

        async def seen() -> bool:
            return await value(other, "a") == b"99"

        await eventually(seen)
        await other.close()

    run(tmp_path, scenario, more="&reads=mirror")


# Time to live


def test_the_servers_own_time_to_live_ends_after_ours(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        expires = there.engine.clock.now() + 5_000
        await put(there.engine, "a", "b", expires=expires)
        await put(there.engine, "c", expires=there.engine.clock.now() - 5_000)
        await put(there.engine, "d")
        headers = [
            (await there.js.get_last_msg(f"KV_{there.bucket}", f"$KV.{there.bucket}.{key}")).headers for key in "acd"
        ]
        assert headers[0] is not None and headers[1] is not None and headers[2] is not None
        assert headers[0]["Keyhouse-Expires"] == str(expires)
        assert headers[0]["Nats-TTL"] in (str(5 + TTL_MARGIN_SECONDS), str(4 + TTL_MARGIN_SECONDS))
        assert headers[1]["Nats-TTL"] == str(TTL_MARGIN_SECONDS)
        assert "Nats-TTL" not in headers[2]

    run(tmp_path, scenario)


def test_a_clock_that_is_not_the_machines_leaves_expiry_to_the_sweep(tmp_path: Path) -> None:
    clock = ManualClock(1_000)

    async def scenario(there: Beside) -> None:
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


# Opening


def test_an_engine_is_opened_by_its_url(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        engine = await open_engine(there.url)
        assert isinstance(engine, JetstreamEngine)
        assert engine.capabilities.durable
        await put(engine, "a")
        assert await value(there.engine, "a") == b"1"
        await engine.close()

    run(tmp_path, scenario)


def test_durable_is_what_the_operator_says() -> None:
    assert not JetstreamEngine.open("nats://localhost").capabilities.durable
    assert JetstreamEngine.open("nats://localhost/?sync=always").capabilities.durable


def test_a_url_names_servers_and_settings() -> None:
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
def test_a_url_that_says_what_can_not_be_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        asyncio.run(open_engine(url))


def test_a_password_is_not_shown() -> None:
    with pytest.raises(UsageError) as refusal:
        asyncio.run(open_engine("nats://me:secret@a/path"))
    assert "secret" not in str(refusal.value)


def test_a_bucket_with_another_number_of_replicas_is_refused(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        await put(there.engine, "a")
        other = JetstreamEngine.open(there.url + "&replicas=3")
        with pytest.raises(UsageError, match="replicas"):
            await put(other, "b")
        await other.close()

    run(tmp_path, scenario)


def test_a_space_without_a_name_is_refused(tmp_path: Path) -> None:
    async def scenario(there: Beside) -> None:
        with pytest.raises(UsageError):
            await there.engine.read("", ["a"])

    run(tmp_path, scenario)
