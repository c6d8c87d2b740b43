"""Servers that are not there, hang, fall and rise: clear errors, nothing twice, and service again. Under load they are in
`test_kill.py`."""

import asyncio
import gc
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.errors import ConnectionClosedError

from keyhouse.engine import Add, Batch, Put
from keyhouse.engines.jetstream import JetstreamEngine, bucket, retry
from keyhouse.engines.jetstream import connection as connection
from keyhouse.engines.jetstream.message import Message
from keyhouse.errors import UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.nats.server import NatsServer
from keyhouse.testing.conformance.harness import step
from tests.engines.support.jetstream_rows import ALL, put, value
from tests.support.nats_servers import nats_server, own_server, url_of

UP_AGAIN_SECONDS_MAX = 5


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with own_server(tmp_path / "nats") as started:
        yield started


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (retry, bucket):
        monkeypatch.setattr(module, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 1.0)


# Not there


def test_a_server_that_is_not_there_is_said_to_be_so(impatient: None) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open("nats://127.0.0.1:1/?sync=always")
        for call in (engine.read("s", ["a"]), engine.commit("s", Batch(puts=(Put("a", b"1"),)))):
            with pytest.raises(UnavailableError, match="can't be reached"):
                await call
        await engine.close()

    asyncio.run(scenario())


def test_what_is_tried_while_the_server_is_gone_is_not_written_later(
    server: NatsServer, impatient: None
) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a")
        server.kill()
        await asyncio.sleep(0.1)
        for batch in (Batch(puts=(Put("b", b"1"),)), Batch(puts=(Put("b", b"1"), Put("c", b"1")))):
            with pytest.raises(UnavailableError):
                await engine.commit("s", batch)
        with pytest.raises(UnavailableError):
            await engine.read("s", ["a"])
        server.start()
        server.ready()
        assert await value(engine, "a") == b"1"
        await asyncio.sleep(0.5)
        assert await engine.read("s", ["b", "c"]) == [None, None]
        await put(engine, "b", value=b"2")
        assert [row.key for row in (await engine.scan("s", ALL, limit=10)).rows] == ["a", "b"]
        await engine.close()

    asyncio.run(scenario())


def test_a_restart_that_is_short_is_waited_for(server: NatsServer) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await step(watch)).key == "before"
        server.stop()
        await asyncio.sleep(0.1)
        server.start()
        revision = await put(engine, "after")
        assert (await step(watch)).revision == revision
        await watch.aclose()
        await engine.close()

    asyncio.run(scenario())


def test_a_watch_waits_for_a_server_that_is_away_for_long(
    server: NatsServer, impatient: None
) -> None:
    """Even for the value of a change that it has heard of; one that begins meanwhile is told."""

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server, "&values=1"))
        watch = engine.watch("s", ALL, since=await put(engine, "start"))
        await put(engine, "before")
        assert (await step(watch)).key == "before"
        heard = await put(engine, "heard")
        server.kill()
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


def test_a_commit_that_is_not_answered_is_unknown_and_its_repeat_applies_once(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await engine.commit("s", Batch(adds=(Add("n", 1),)))
        assert engine._connection is not None
        request = engine._connection.request

        async def impatient(messages, *, seconds=0.3):  # type: ignore[no-untyped-def]
            return await request(messages, seconds=min(seconds, 0.3))

        monkeypatch.setattr(engine._connection, "request", impatient)
        server.pause()
        batch = Batch(adds=(Add("n", 10),), puts=(Put("a", b"1"),), id="once")
        with pytest.raises(UnknownOutcomeError):
            await engine.commit("s", batch)
        server.resume()
        monkeypatch.setattr(engine._connection, "request", request)
        first = await engine.commit("s", batch)
        assert await engine.commit("s", batch) == first
        assert await value(engine, "n") == b"11"
        await engine.close()

    asyncio.run(scenario())


def test_what_arrives_late_does_not_replace_what_was_written_since(server: NatsServer) -> None:
    """A message that hung in a stopped server, or on the way, and that nobody waits for any more."""

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a", value=b'"old"')
        assert engine._connection is not None
        sent: list[list[Message]] = []
        request = engine._connection.request

        async def remember(messages, **options):  # type: ignore[no-untyped-def]
            sent.append(messages)
            return await request(messages, **options)

        engine._connection.request = remember  # type: ignore[method-assign]
        await put(engine, "a", value=b'"late"')
        late = [messages for messages in sent if messages[-1].subject.startswith("$KV.")]
        await put(engine, "a", value=b'"new"')
        for messages in late:
            assert b"wrong last sequence" in (await request(messages)).data
        assert await value(engine, "a") == b'"new"'
        await engine.close()

    asyncio.run(scenario())


def test_a_server_that_hangs_is_left_and_found_again(
    server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "PING_SECONDS", 0.2)

    async def scenario() -> None:
        engine = JetstreamEngine.open(url_of(server))
        await put(engine, "a")
        server.pause()
        with pytest.raises((UnknownOutcomeError, UnavailableError)):
            await put(engine, "b")
        server.resume()
        began = time.monotonic()
        await put(engine, "c")
        assert time.monotonic() - began < UP_AGAIN_SECONDS_MAX
        await engine.close()

    asyncio.run(scenario())


# Refused


@pytest.mark.parametrize(
    ("version", "payload", "says"),
    [("2.11.9", 1_048_576, "2.12.0"), ("2.12.0", 65_536, "max_payload")],
)
def test_a_server_that_can_not_do_it_is_refused_with_what_it_needs(
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


def test_a_server_that_does_not_sync_as_the_url_says_is_refused(tmp_path: Path) -> None:
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


# The server of our own


def test_the_server_listens_on_loopback_only_and_syncs_always(server: NatsServer) -> None:
    configuration = json.loads((server.folder / "nats-server.json").read_text())
    assert configuration["host"] == "127.0.0.1"
    assert configuration["http"].startswith("127.0.0.1:")
    assert configuration["jetstream"]["sync_interval"] == "always"


def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
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
    deadline = time.monotonic() + 10
    while _runs(child):
        assert time.monotonic() < deadline, "the server outlives the process that started it"
        time.sleep(0.02)


def _runs(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_connection_that_breaks_while_a_message_is_sent_leaves_no_error_that_nobody_hears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its sender hears that it was not sent. What it would have waited for was given an error too, which the loop logged
    with a traceback, for each request that was under way."""
    unheard: list[str] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: unheard.append(context["message"])
        )
        engine = JetstreamEngine.open(url_of(nats_server()))
        await put(engine, "a")
        connection = engine._connection
        assert connection is not None

        async def broken(*message: object, **options: object) -> None:
            connection._abandon_pending()
            raise ConnectionClosedError

        with monkeypatch.context() as patch:
            patch.setattr(connection._client, "publish", broken)
            with pytest.raises(UnavailableError):
                await connection.request([Message("a", b"", {})])
        gc.collect()
        await asyncio.sleep(0)
        await engine.close()

    asyncio.run(scenario())
    assert unheard == []
