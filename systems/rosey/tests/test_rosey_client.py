"""The plugin author's client, the example plugin, and permissions that keep plugins apart, on real
servers."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import nats
import pytest
from nats.aio.client import Client

from keyhouse import open_engine
from keyhouse.errors import (
    AccessError,
    CallerError,
    ConflictError,
    EngineError,
    LimitError,
    QuotaError,
    RateError,
    UnavailableError,
    WatchExpiredError,
)
from keyhouse.nats.connection import connect
from keyhouse.nats.listener import NatsListener
from keyhouse.nats.server import ReservedPort, find_binary
from keyhouse.serve.metrics import Metrics
from keyhouse.service.nats_acl import SERVICE, NatsUser, authorization
from keyhouse.service.spec import ServiceContext
from keyhouse.store import ANY
from keyhouse_rosey import SYSTEM, remote
from keyhouse_rosey.acl import users
from keyhouse_rosey.client import PluginStorage, StoredValue
from keyhouse_rosey.errors import PluginNameError
from systems.rosey.tests.support.harness import Harness, living
from tests.docs.pages import DOCS, blocks
from tests.support.nats_servers import nats_server
from tests.support.polling import until

ROOT = Path(__file__).parents[3]


def storage(harness: Harness, plugin: str = "trivia") -> PluginStorage:
    return PluginStorage(harness.client, plugin, timeout=30)


def test_values_without_json_are_rejected(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        kv = storage(harness)
        for value in (float("nan"), [1, {"a": float("inf")}]):
            with pytest.raises(CallerError, match="not finite"):
                await kv.set("a", value)
        with pytest.raises(CallerError, match="not finite"):
            await kv.batch({"op": "set", "key": "a", "value": float("nan")})
        for key, text in (("a", "\ud800"), ("\ud800", "a")):
            with pytest.raises(CallerError, match="lone surrogate"):
                await kv.set(key, text)
        assert await kv.found("a") is None
        await kv.set("a", [None, "null"])
        assert await kv.get("a") == [None, "null"]

    living("sqlite", tmp_path)(story)


def test_a_request_over_the_nats_limit_is_value_too_large(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        with pytest.raises(LimitError, match="limit=1048576"):
            await storage(harness).set("a", "x" * 1_100_000)

    living("sqlite", tmp_path)(story)


@pytest.mark.parametrize("name", ["", "Trivia", "two words", "a.b", "*", ">", "a\r\nPUB x 1"])
def test_an_invalid_plugin_name_is_never_part_of_a_subject(name: str) -> None:
    with pytest.raises(PluginNameError):
        PluginStorage(Client(), name)


def test_each_operation_is_one_line_of_a_plugin(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        kv = storage(harness)
        assert await kv.get("score") is None and await kv.get("score", 0) == 0
        await kv.set("score", {"ann": 3})
        assert await kv.get("score") == {"ann": 3}
        await kv.set("session", "x", ttl=60)
        assert await kv.touch("session", 120) and not await kv.touch("nothing", 5)
        harness.clock.advance(seconds=119)
        assert await kv.get("session") == "x"
        harness.clock.advance(seconds=1)
        assert await kv.get("session") is None
        assert await kv.incr("count") == 1 and await kv.incr("count", 5) == 6
        found = await kv.found("count")
        assert found is not None and found.value == 6 and await kv.found("nothing") is None
        revision = await kv.cas("count", 7, found.revision)
        with pytest.raises(ConflictError):
            await kv.cas("count", 8, None)
        assert (await kv.found("count")) == StoredValue("count", 7, revision)
        assert await kv.batch(
            {"op": "set", "key": "a", "value": 1}, {"op": "delete", "key": "count"}
        ) == [
            {},
            {"deleted": True},
        ]
        assert await kv.get_many(["a", "nothing"]) == {"a": 1}
        assert await kv.delete("a") and not await kv.delete("a")
        for number in range(1_200):
            await harness.publish("trivia.set", {"key": f"k{number:04d}", "value": number})
        assert await kv.count("k") == 1_200 and len(await kv.keys("k")) == 1_200
        assert [found.value async for found in kv.items("k")] == list(range(1_200))

    living("sqlite", tmp_path)(story)


def test_errors_are_raised_by_code(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        kv = storage(harness)
        with pytest.raises(LimitError) as large:
            await kv.set("a", "x" * 70_000)
        assert large.value.code == "VALUE_TOO_LARGE"
        for work in (kv.set("", 1), kv.set("a", 1, ttl=0), kv.get("a" * 256)):
            with pytest.raises(CallerError):
                await work
        await kv.set("a", 1)
        with pytest.raises(QuotaError):
            await kv.set("b", 1)
        with pytest.raises(RateError):
            while True:
                await kv.get("a")
        harness.clock.advance(seconds=100)
        await harness.engine.close()
        with pytest.raises(EngineError):
            await kv.get("a")
        await harness.stop()
        with pytest.raises(UnavailableError, match="No plugin storage is running"):
            await kv.set("a", 2)

    living("sqlite", tmp_path, quota_keys=1, rate_per_second=1, rate_burst=100)(story)


def test_a_watch_resumes_after_a_restart(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        kv = storage(harness)
        seen: list[tuple[str, Any]] = []

        async def follow() -> None:
            async for change in kv.watch("k"):
                seen.append((change.key, change.value))

        following = asyncio.ensure_future(follow())
        async with asyncio.timeout(60):
            await until(lambda: harness.metric("rosey_kv_watches") == 1)
            await kv.set("k1", 1)
            await until(lambda: ("k1", 1) in seen)
            await harness.restart()
            await kv.set("k2", 2)
            await until(lambda: ("k2", 2) in seen)
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following

    living("sqlite", tmp_path)(story)


def test_a_watch_since_an_unavailable_revision_raises(
    tmp_path: Path,
) -> None:
    """It was asked for again and again, without end."""

    async def story(harness: Harness) -> None:
        kv = storage(harness)
        for number in range(3):
            await kv.set("k", number)
        connection = apsw.Connection(str(tmp_path / "rosey.db"))
        connection.execute("DELETE FROM plugin_kv_changes WHERE revision < 3")
        connection.close()
        for since in (1, 1_000):
            with pytest.raises(WatchExpiredError):
                await asyncio.wait_for(anext(kv.watch(since=since)), 20)

    living("sqlite", tmp_path)(story)


def test_a_watch_passes_a_row_that_is_not_json(tmp_path: Path) -> None:
    """At a row that somebody had spoiled it was started again at once, and again, hundreds of times
    a second."""

    async def story(harness: Harness) -> None:
        kv = storage(harness)
        for key in "ab":
            await kv.set(key, 1)
        connection = apsw.Connection(str(tmp_path / "rosey.db"))
        connection.execute("UPDATE plugin_kv_storage SET value = '{' WHERE key = 'b'")
        connection.close()
        await kv.set("c", 1)
        async with aclosing(kv.watch(since=0)) as changes:
            keys = [(await asyncio.wait_for(anext(changes), 20)).key for _ in range(2)]
        assert keys == ["a", "c"]
        with pytest.raises(CallerError):
            await asyncio.wait_for(anext(kv.watch(since=-1)), 20)

    living("sqlite", tmp_path)(story)


# The example


@asynccontextmanager
async def playing(url: str) -> AsyncIterator["asyncio.subprocess.Process"]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "trivia.py"),
        url,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert await asyncio.wait_for(process.stdout.readline(), 60) == b"trivia plays\n"
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def test_the_trivia_game_survives_a_restart(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        said = await harness.client.subscribe("chat.out")

        async def chat(user: str, text: str) -> str:
            await harness.client.publish(
                "chat.in", json.dumps({"user": user, "text": text}).encode()
            )
            answer: str = json.loads((await said.next_msg(timeout=30)).data)["text"]
            return answer

        async with playing(nats_server().url) as game:
            assert await chat("ann", "!score") == "Nobody has a point yet."
            question = await chat("ann", "!trivia")
            assert "planet" in question
            await harness.client.publish(
                "chat.in", b'{"user": "bob", "text": "saturn"}'
            )  # wrong: nothing is said
            game.kill()
            await game.wait()
        await harness.restart()
        async with playing(nats_server().url):
            assert await chat("bob", "!trivia") == f"A round is open already: {question}"
            assert await chat("bob", " Jupiter ") == "bob is right, and has 1 now!"
            assert "year" in await chat("ann", "!trivia")
            harness.clock.advance(seconds=60)  # nobody answers: the round ends by itself
            assert "ocean" in await chat("ann", "!trivia")
            assert await chat("bob", "pacific") == "bob is right, and has 2 now!"
            assert await chat("ann", "!score") == "bob 2"

    living("sqlite", tmp_path)(story)


# Permissions


async def listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@asynccontextmanager
async def guarded(
    folder: Path, *plugins: str, more: Sequence[NatsUser] = (), mappings: str = ""
) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """A server with the printed permissions, and the service on it; its address, and the passwords.
    `more`: users whose permissions somebody has written by hand."""
    passwords = {name: f"pw-{name}" for name in (SERVICE, *plugins)}
    reserved = ReservedPort()
    port = reserved.number
    configuration = folder / "nats.conf"
    allowed = authorization([*users(plugins, passwords=passwords), *more])
    configuration.write_text(f"host: 127.0.0.1\nport: {port}\n{mappings}" + allowed)
    server = subprocess.Popen(
        [find_binary(), "--config", str(configuration)], stderr=subprocess.DEVNULL
    )
    try:
        engine = await open_engine(f"sqlite:{folder}/rosey.db?layout=rosey")
        served = SYSTEM.service(
            ServiceContext(engine=engine, data=folder, metrics=Metrics("0").registry)
        )
        url = f"nats://{SERVICE}:pw-{SERVICE}@127.0.0.1:{port}"
        await until(lambda: listens(port))
        async with (
            connect(url) as connection,
            NatsListener(connection, served.endpoints, name="rosey", version="0.1.0"),
        ):
            yield f"127.0.0.1:{port}", passwords
        await engine.close()
    finally:
        server.kill()
        server.wait()


@pytest.mark.parametrize("has_partitions", [False, True])
def test_with_the_printed_permissions_a_plugin_reaches_only_its_own(
    tmp_path: Path, has_partitions: bool
) -> None:
    """The mappings are those that the documentation shows."""
    [documented] = [
        block for block in blocks((DOCS / "serving.md").read_text(), "text") if "mappings" in block
    ]
    mappings = documented if has_partitions else ""

    async def scenario() -> None:
        async with guarded(tmp_path, "trivia", "quote-db", mappings=mappings) as (
            address,
            passwords,
        ):
            trouble: list[str] = []

            async def collect(error: Exception) -> None:
                trouble.append(str(error))

            async def plugin(name: str) -> Client:
                return await nats.connect(
                    f"nats://{name}:{passwords[name]}@{address}",
                    inbox_prefix=f"_INBOX_{name}".encode(),
                    connect_timeout=30,  # a connection that is tried again is an error, too
                    error_cb=collect,
                )

            trivia, quotes = await plugin("trivia"), await plugin("quote-db")
            kv, other = (
                PluginStorage(trivia, "trivia", timeout=30),
                PluginStorage(quotes, "quote-db", timeout=30),
            )
            await kv.set("mine", 1)
            await other.set("secret", "quote")
            assert await kv.keys() == ["mine"] and await other.get("secret") == "quote"
            started = asyncio.Event()
            changes = kv.watch(started=lambda revision: started.set())
            first = asyncio.ensure_future(anext(changes))
            await asyncio.wait_for(started.wait(), 30)
            await kv.set("mine", 2)
            assert (await asyncio.wait_for(first, 30)).value == 2
            await changes.aclose()
            assert trouble == []

            with pytest.raises(UnavailableError):
                await PluginStorage(trivia, "quote-db", timeout=1).get("secret")
            await trivia.publish("db.kv.quote-db.delete", b'{"key": "secret"}')
            for number in range(16):
                await trivia.publish(f"db.kv.quote-db.delete.{number}", b'{"key": "secret"}')
            for subject in (
                ">",
                "_INBOX_quote-db.>",
                "db.kv.>",
                "db.changes.quote-db.>",
                "_INBOX.>",
            ):
                heard = await trivia.subscribe(subject)
                await trivia.flush()
                await other.set("secret", "still")
                assert heard.pending_msgs == 0
            await trivia.flush()
            assert await other.get("secret") == "still"
            denied = [line for line in trouble if "permissions violation" in line.lower()]
            assert len([line for line in denied if "publish" in line.lower()]) >= 2
            assert len([line for line in denied if "subscription" in line.lower()]) >= 5
            intruder = Client()
            with pytest.raises((OSError, nats.errors.Error)):
                await intruder.connect(
                    f"nats://trivia:wrong@{address}", allow_reconnect=False, error_cb=collect
                )
            await intruder.close()
            await trivia.close()
            await quotes.close()

    asyncio.run(scenario())


def test_a_missing_permission_is_reported_at_once(tmp_path: Path) -> None:
    """`keyhouse list rosey` of a service said after five seconds that the service did not answer,
    which it never was asked."""
    reader = NatsUser("reads", "pw", ["db.kv.trivia.get"], ["_INBOX_trivia.>"], "_INBOX_trivia")
    deaf = NatsUser("deaf", "pw", ["db.kv.trivia.*"], ["_INBOX.>"], "_INBOX")

    async def scenario() -> None:
        async with guarded(tmp_path, "trivia", "quote-db", more=[reader, deaf]) as (
            address,
            passwords,
        ):
            trivia = await remote.connect(
                f"nats://trivia:{passwords['trivia']}@{address}", "trivia", None
            )
            trivia.storage.requests.timeout = 30
            await trivia.put("mine", b"1", ttl=None, expect=ANY)
            for user in (SERVICE, "quote-db", "deaf"):
                with pytest.raises(AccessError, match="keyhouse rosey acl") as refused:
                    await remote.connect(
                        f"nats://{user}:{passwords.get(user, 'pw')}@{address}", "trivia", None
                    )
                assert refused.value.fields["plugin"] == "trivia"
            reads = await remote.connect(f"nats://reads:pw@{address}", "trivia", None)
            reads.storage.requests.timeout = 600  # nobody waits for it
            assert (found := await reads.get("mine")) is not None and found.value == b"1"
            with pytest.raises(AccessError, match=r"db[.]kv[.]trivia[.]set"):
                await reads.put("mine", b"2", ttl=None, expect=ANY)
            writes = (
                reads.put(key, b"2", ttl=None, expect=ANY) for key in ("mine", "yours", "theirs")
            )
            async with asyncio.timeout(30):  # each of them fails, not only the first
                at_once = await asyncio.gather(*writes, return_exceptions=True)
            assert [type(each) for each in at_once] == [AccessError] * 3
            await reads.connection.flush()
            assert await reads.get("yours") is None  # earlier errors do not fail this request
            assert (found := await trivia.get("mine")) is not None and found.value == b"1"
            await reads.close()
            await trivia.close()

    asyncio.run(scenario())


def test_the_acl_command_prints_a_valid_configuration() -> None:
    """For the subjects that the service is set to answer: it printed those of nobody's settings."""
    command = [sys.executable, "-m", "keyhouse.cli", "rosey", "acl"]
    printed = subprocess.run(
        [*command, "trivia", "quote-db"], capture_output=True, text=True, check=True
    ).stdout
    assert printed.startswith("authorization {") and printed.count("password:") == 3
    allowed = ["db.kv.trivia.*", "db.kv.trivia.*.6", "rosey.db.kv.trivia.*"]
    assert ", ".join(f'"{subject}"' for subject in allowed) in printed
    set_so = os.environ | {"KEYHOUSE_ROSEY_PREFIXES": "bot.kv"}
    as_json = subprocess.run(
        [*command, "trivia", "--json"], capture_output=True, text=True, check=True, env=set_so
    ).stdout
    service, trivia = json.loads(as_json)["users"]
    assert service["user"] == SERVICE and "_INBOX_trivia.>" in service["publish"]
    assert trivia["publish"] == ["bot.kv.trivia.*", "bot.kv.trivia.*.6"]
    assert "bot.kv.>" in service["subscribe"]
    refused = subprocess.run([*command, "Trivia"], capture_output=True, text=True)
    assert refused.returncode != 0 and "1 to 100" in refused.stderr
    with pytest.raises(PluginNameError):
        users([SERVICE])
    with pytest.raises(PluginNameError):
        users(['a" }'])
