"""Servers that are unreachable, hang or restart: clear errors, no duplicate writes, recovery.
`test_kill.py` does the same under load."""

import asyncio
import gc
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError

from keyhouse.engine import Add, Batch, Put
from keyhouse.engines.jetstream import JetstreamEngine, bucket, retry
from keyhouse.engines.jetstream import connection as connection
from keyhouse.engines.jetstream.message import Message
from keyhouse.engines.jetstream.settings import parse
from keyhouse.errors import UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.nats.server import NatsServer
from keyhouse.testing.conformance.harness import step
from tests.engines.support.jetstream_rows import ALL, put, run, value
from tests.support.nats_servers import SharedBucket, nats_server, own_server, url_of
from tests.support.polling import until, wait_until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with own_server(tmp_path / "nats") as started:
        yield started


@contextmanager
def short_timeouts() -> Iterator[None]:
    """Shorten the timeouts, while no server runs: one that runs may take longer to reply."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (retry, bucket):
            patch.setattr(module, "TIMEOUT_SECONDS", 1.0)
        patch.setattr(connection, "CONNECT_SECONDS", 1.0)
        yield


async def until_disconnected(engine: JetstreamEngine) -> None:
    """Wait until the engine knows that its server is gone: then nothing is sent any more."""

    async def is_disconnected() -> bool:
        return engine.connection is not None and not engine.connection.connected

    await until(is_disconnected)


# Unreachable servers


def test_an_unreachable_server_raises_unavailable() -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open("nats://127.0.0.1:1/?sync=always")
        for call in (engine.read("s", ["a"]), engine.commit("s", Batch(puts=(Put("a", b"1"),)))):
            with short_timeouts(), pytest.raises(UnavailableError, match="cannot be reached"):
                await call
        await engine.close()

    asyncio.run(scenario())


def test_a_commit_that_failed_during_an_outage_is_not_written_later(server: NatsServer) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a")
        server.kill()
        await until_disconnected(engine)
        for batch in (Batch(puts=(Put("b", b"1"),)), Batch(puts=(Put("b", b"1"), Put("c", b"1")))):
            with short_timeouts(), pytest.raises(UnavailableError):
                await engine.commit("s", batch)
        with short_timeouts(), pytest.raises(UnavailableError):
            await engine.read("s", ["a"])
        server.start()
        server.ready()
        assert await value(engine, "a") == b"1"
        assert await engine.read("s", ["b", "c"]) == [None, None]
        await put(engine, "b", value=b"2")
        assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == ["a", "b"]
        await engine.close()

    asyncio.run(scenario())


def test_calls_wait_for_a_short_restart(server: NatsServer) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await step(watch)).key == "before"
        server.stop()
        await until_disconnected(engine)
        server.start()
        revision = await put(engine, "after")
        assert (await step(watch)).revision == revision
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())


def test_reads_of_the_mirror_continue_while_no_server_runs(server: NatsServer) -> None:
    """`reads=mirror` promises no commits of other processes, but a lost server failed the reads."""

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server, "&reads=mirror"))
        await put(engine, "a", value=b"2")
        assert await value(engine, "a") == b"2"
        server.kill()
        await until_disconnected(engine)
        assert await value(engine, "a") == b"2"
        assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == ["a"]
        await engine.close()

    asyncio.run(scenario())


def test_a_read_needs_no_consumer_if_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lost leader took the consumer with it: a new one had to be created before the first read,
    seconds after the election. A read that could be stale still waits for it."""

    async def refuse(*_: object) -> None:
        raise UnavailableError("No consumer for now.")

    async def scenario(there: SharedBucket) -> None:
        await put(there.engine, "a", value=b"1")
        other = JetstreamEngine.open(there.url)
        assert await value(other, "a") == b"1"
        with monkeypatch.context() as patch:
            patch.setattr(other.connection, "subscribe", refuse)
            for each in other.buckets.values():
                each.on_disconnect()
            assert await value(other, "a") == b"1"
            await put(there.engine, "a", value=b"2")
            with short_timeouts(), pytest.raises(UnavailableError, match="cannot be read"):
                await value(other, "a")
        assert await value(other, "a") == b"2"
        await other.close()

    run(tmp_path, scenario)


def test_a_request_that_met_no_leader_is_sent_again(tmp_path: Path) -> None:
    """A new leader never saw it: the caller waited for its timeout, 2.5 seconds, and then again.
    Here the first request and the second get no reply."""
    asked: list[bytes] = []

    async def scenario(server: NatsServer) -> None:
        client = await nats.connect(server.url)

        async def reply(message: Msg) -> None:
            asked.append(message.data)
            if len(asked) == 3:
                await message.respond(b'{"created":"now"}')

        await client.subscribe("$JS.API.STREAM.INFO.KV_b", cb=reply)
        await client.flush()
        opened = connection.Connection(parse(server.url), on_disconnect=lambda: None)
        await opened.open()
        assert await opened.api("STREAM.INFO.KV_b") == {"created": "now"}
        await opened.close()
        await client.close()

    with own_server(tmp_path / "nats", jetstream=False) as server:
        asyncio.run(scenario(server))
    assert asked == [b""] * 3


def test_a_watch_waits_through_a_long_outage(server: NatsServer) -> None:
    """It also waits for the value of a change it has received; a watch started meanwhile raises."""

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server, "&values=1"))
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await step(watch)).key == "before"
        heard = await put(engine, "heard")
        server.kill()
        with short_timeouts():
            waiting = asyncio.ensure_future(step(watch))
            with pytest.raises(UnavailableError):
                await step(engine.watch("s", ALL))
            await asyncio.wait([waiting], timeout=2.5 * retry.TIMEOUT_SECONDS)
        assert not waiting.done()
        server.start()
        assert (await waiting).revision == heard
        after = await put(engine, "after")
        assert (await step(watch)).revision == after
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())


def test_an_unanswered_commit_is_unknown_and_its_retry_applies_once(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await engine.commit("s", Batch(adds=(Add("n", 1),)))
        assert engine.connection is not None
        request = engine.connection.request

        async def short_timeouts(messages, *, seconds=0.3):  # type: ignore[no-untyped-def]
            return await request(messages, seconds=min(seconds, 0.3))

        monkeypatch.setattr(engine.connection, "request", short_timeouts)
        server.pause()
        batch = Batch(adds=(Add("n", 10),), puts=(Put("a", b"1"),), id="once")
        with pytest.raises(UnknownOutcomeError):
            await engine.commit("s", batch)
        server.resume()
        monkeypatch.setattr(engine.connection, "request", request)
        first = await engine.commit("s", batch)
        assert await engine.commit("s", batch) == first
        assert await value(engine, "n") == b"11"
        await engine.close()

    asyncio.run(scenario())


def test_a_late_message_does_not_replace_a_newer_one(server: NatsServer) -> None:
    """The message was delayed in a stopped server or in transit, and its caller has given up."""

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a", value=b'"old"')
        assert engine.connection is not None
        sent: list[list[Message]] = []
        request = engine.connection.request

        async def remember(messages, **options):  # type: ignore[no-untyped-def]
            sent.append(messages)
            return await request(messages, **options)

        engine.connection.request = remember  # type: ignore[method-assign]
        await put(engine, "a", value=b'"late"')
        late = [messages for messages in sent if messages[-1].subject.startswith("$KV.")]
        await put(engine, "a", value=b'"new"')
        for messages in late:
            assert b"wrong last sequence" in (await request(messages)).data
        assert await value(engine, "a") == b'"new"'
        await engine.close()

    asyncio.run(scenario())


def test_a_hanging_server_is_dropped_and_reconnected(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_SECONDS", 0.7)

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a")
        server.pause()
        with pytest.raises((UnknownOutcomeError, UnavailableError)):
            await put(engine, "b")
        server.resume()
        await put(engine, "c")
        await engine.close()

    asyncio.run(scenario())


# Rejected servers


@pytest.mark.parametrize(
    ("version", "payload", "says"),
    [("2.11.9", 1_048_576, "2.12.0"), ("2.12.0", 65_536, "max_payload")],
)
def test_an_unsuitable_server_is_rejected_with_the_requirement(
    version: str, payload: int, says: str
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = {
            "server_id": "x",
            "version": version,
            "max_payload": payload,
            "headers": True,
            "proto": 1,
        }
        writer.write(b"INFO " + json.dumps(info).encode() + b"\r\n")
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(speak, "127.0.0.1", 0) as old:
            port = old.sockets[0].getsockname()[1]
            engine = JetstreamEngine.open(f"nats://127.0.0.1:{port}")
            with pytest.raises(UsageError, match=says):
                await engine.read("s", ["a"])
            await engine.close()

    asyncio.run(scenario())


def test_a_server_that_does_not_sync_as_the_url_states_is_rejected(tmp_path: Path) -> None:
    class Lazy(NatsServer):
        def _configuration(self) -> dict[str, object]:
            configuration = super()._configuration()
            del configuration["jetstream"]["sync_interval"]
            return configuration

    async def scenario(server: NatsServer, accepted: bool) -> None:
        engine = JetstreamEngine.open(url_of(server, f"&monitor={server.monitor}"))
        if accepted:
            await put(engine, "a")
        else:
            with pytest.raises(UsageError, match="sync_interval"):
                await put(engine, "a")
        await engine.close()

    lazy = Lazy(tmp_path)
    lazy.start()
    lazy.ready()
    asyncio.run(scenario(lazy, accepted=False))
    lazy.stop()
    asyncio.run(scenario(nats_server(), accepted=True))


# The embedded server


def test_the_server_listens_on_loopback_only_and_syncs_always(server: NatsServer) -> None:
    configuration = json.loads((server.folder / "nats-server.json").read_text())
    assert configuration["host"] == "127.0.0.1"
    assert configuration["http"].startswith("127.0.0.1:")
    assert configuration["jetstream"]["sync_interval"] == "always"


def test_the_server_stops_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "from keyhouse.nats.server import NatsServer\n"
        "server = NatsServer(pathlib.Path(sys.argv[1]))\n"
        "server.start(); server.ready(); print(server.process_id, flush=True); time.sleep(60)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until(lambda: not _runs(child))  # the server ends with the process that started it


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_connection_lost_while_sending_leaves_no_unretrieved_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sender raises an error. The pending reply also got an exception that nobody retrieved,
    and the loop logged a traceback for every request in flight."""
    unheard: list[str] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unheard.append(context["message"])
        )
        engine = JetstreamEngine.open(url_of(nats_server()))
        await put(engine, "a")
        connection = engine.connection
        assert connection is not None

        async def broken(*message: object, **options: object) -> None:
            connection.abandon_pending()
            raise ConnectionClosedError

        with monkeypatch.context() as patch:
            patch.setattr(connection.client, "publish", broken)
            with pytest.raises(UnavailableError):
                await connection.request([Message("a", b"", {})])
        gc.collect()
        await asyncio.sleep(0)
        await engine.close()

    asyncio.run(scenario())
    assert unheard == []
