"""Messages that the server passes on and the driver cannot decode must not silence the service; nor
may a server that reads no replies or disconnects within a message."""

import asyncio
import re
from pathlib import Path

import nats
import pytest
import uvloop
from nats.aio.client import Client
from nats.errors import BadSubjectError
from structlog.testing import capture_logs

from keyhouse.errors import UnavailableError
from keyhouse.nats.client import PENDING_BYTES_MAX, NatsClient
from keyhouse.nats.connection import connect
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.nats.listener import NatsListener
from keyhouse.nats.parser import Parser
from keyhouse.serve.server import nats_check
from tests.nats.support.listeners import ask, client, listener
from tests.support.nats_server_configs import ConfiguredServer, configured
from tests.support.nats_servers import nats_server
from tests.support.polling import loop_turns, until


async def echo(request: Request) -> bytes:
    return b'{"success":true}'


async def send(protocol: bytes) -> None:
    """Send raw protocol bytes. When this returns, the server has passed them on."""
    found = re.fullmatch(r"nats://([^:]+):(\d+)", nats_server().url)
    assert found is not None
    reader, writer = await asyncio.open_connection(found[1], int(found[2]))
    writer.write(
        b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n'
        + protocol
        + b"PING\r\n"
    )
    async with asyncio.timeout(10):
        while (line := await reader.readline()) != b"PONG\r\n":
            assert line and not line.startswith(b"-ERR"), line
    writer.close()
    await writer.wait_closed()


def with_header(header: bytes) -> bytes:
    return b"HPUB tested.a.echo _INBOX.x %d %d\r\n%b{}\r\n" % (len(header), len(header) + 2, header)


@pytest.mark.parametrize(
    "protocol",
    [
        pytest.param(
            b"PUB tested.\xff\xfe.echo _INBOX.x 2\r\n{}\r\n", id="a subject that is not UTF-8"
        ),
        pytest.param(
            b"PUB tested.a.echo _INBOX.\xff 2\r\n{}\r\n", id="a reply subject that is not UTF-8"
        ),
        pytest.param(
            b"PUB tested.a\x0cb.echo _INBOX.x 2\r\n{}\r\n", id="a form feed in the subject"
        ),
        pytest.param(
            b"PUB tested.a.echo _INBOX.a\x0bb 2\r\n{}\r\n", id="a vertical tab in the reply subject"
        ),
        pytest.param(with_header(b"NATS/1.0 \xff\xff\r\n\r\n"), id="a status that is not UTF-8"),
        pytest.param(
            with_header(b"NATS/1.0\r\n\xfe: \xff\r\n\r\n"), id="a header that is not UTF-8"
        ),
        pytest.param(with_header(b"NATS/1.0\r\nno colon\r\n\r\n"), id="a header without a colon"),
        pytest.param(with_header(b"N\r\n\r\n"), id="a header that is too short"),
    ],
)
def test_no_message_silences_the_service(protocol: bytes) -> None:
    async def scenario() -> None:
        async with (
            listener([Endpoint(name="echo", subject="tested.*.echo", handler=echo)]) as serving,
            client() as plugin,
        ):
            connection = serving.client
            await send(protocol * 3)
            assert await ask(plugin, "tested.a.echo") == {"success": True}
            assert connection.stats["reconnects"] == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [False, True])
def test_a_cancelled_handler_replies_and_the_next_request_is_served(
    waits: bool,
) -> None:
    """It stopped the driver's reader: the service was connected, but replied to no one."""

    async def cancelled(request: Request) -> bytes:
        if waits:
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    async def scenario() -> None:
        endpoints = [
            Endpoint(name="echo", subject="tested.*.echo", handler=echo),
            Endpoint(name="bad", subject="tested.*.bad", handler=cancelled),
        ]
        async with listener(endpoints) as serving, client() as plugin:
            for _ in range(3):
                assert (await ask(plugin, "tested.a.bad"))["error_code"] == "INTERNAL_ERROR"
            assert await ask(plugin, "tested.a.echo") == {"success": True}
            assert serving.requests.running == 0

    asyncio.run(scenario())


def test_bytes_of_a_broken_connection_are_discarded() -> None:
    async def scenario() -> None:
        connection, taken = NatsClient(), list[bytes]()

        def take(subject: str, reply: str, data: bytes) -> bool:
            taken.append(data)
            connection._status = (
                Client.RECONNECTING
            )  # as the driver says it while another message is being taken
            connection._ps.reset()
            return True

        connection.handlers[b"1"] = take
        await connection._ps.parse(b"MSG a 1 2\r\nhi\r\nMSG a 1 5\r\nhe")
        connection._status = Client.CONNECTED
        await connection._ps.parse(b"MSG a 1 5\r\nwhole\r\n")
        assert taken == [b"hi", b"whole"]

    asyncio.run(scenario())


def test_a_slow_server_delays_requests_without_losing_replies() -> None:
    """Small requests for large values, sent fast: their replies filled the memory."""
    asked, size, at_once = 60, 1_000_000, 4
    reading, answers = asyncio.Event(), 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A minimal NATS server: it sends requests, and reads no reply until the test allows it."""
        nonlocal answers
        writer.write(b'INFO {"max_payload":8388608}\r\n')
        pings = 0
        while pings < 3:  # one of the connection, two of the listener
            line = await reader.readline()
            if line.startswith(b"SUB tested."):
                number = line.split()[-1]
            if line == b"PING\r\n":
                pings += 1
                writer.write(b"PONG\r\n")
        for _ in range(asked):
            writer.write(b"MSG tested.a.large %b _INBOX.x 2\r\n{}\r\n" % number)
        await reading.wait()
        while line := await reader.readline():
            if line.startswith(b"PUB "):
                await reader.readexactly(int(line.split()[-1]) + 2)
                answers += 1
            elif line == b"PING\r\n":
                writer.write(b"PONG\r\n")
        writer.close()

    async def large(request: Request) -> bytes:
        return b"x" * size

    async def scenario() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, connect(f"nats://127.0.0.1:{port}") as connection:
            endpoint = Endpoint(name="large", subject="tested.*.large", handler=large)
            async with NatsListener(
                connection, [endpoint], name="t", version="1.0.0", in_flight_max=at_once
            ) as serving:
                await until(
                    lambda: (
                        serving.requests.running == at_once
                        and serving.requests.waiting > asked // 2
                    )
                )
                await loop_turns(100)
                assert connection.pending_data_size < PENDING_BYTES_MAX + at_once * size
                reading.set()
                await until(lambda: answers == asked)

    asyncio.run(scenario())


def test_a_connection_without_a_reader_is_not_healthy() -> None:
    """The driver stops reading at an unexpected error and stays connected: the service was `ready`,
    but did not reply."""

    async def scenario() -> None:
        async with connect(nats_server().url) as connection:
            check = nats_check(connection)
            await check()

            class Broken(Parser):
                async def parse(self, data: bytes = b"") -> None:
                    raise ZeroDivisionError

            connection._ps = Broken(connection)  # type: ignore[assignment]
            await connection.publish("tested.any", b"")
            await break_reading(connection)
            with pytest.raises(UnavailableError, match="restart the service"):
                await check()

    asyncio.run(scenario())


async def break_reading(connection: NatsClient) -> None:
    """Make the server send something, and wait until the reader has received it."""
    await connection.subscribe("tested.own")
    await connection.publish("tested.own", b"")
    await until(lambda: not connection.is_reading)


def test_server_errors_caused_by_a_caller_are_logged_once_a_second(
    tmp_path: Path,
) -> None:
    """A plugin could name a reply subject that the service may not publish to: the server sent an
    error for each reply, and each was logged."""
    service = {
        "user": "keyhouse",
        "password": "x",
        "permissions": {"publish": ["_INBOX.>"], "subscribe": ["tested.>", "$SRV.>", "_INBOX.>"]},
    }
    users = {"users": [service, {"user": "evil", "password": "x"}]}

    async def scenario(server: ConfiguredServer) -> None:
        endpoint = Endpoint(name="echo", subject="tested.*.echo", handler=echo)
        async with (
            connect(server.address("keyhouse:x@")) as connection,
            NatsListener(connection, [endpoint], name="tested", version="1.2.3"),
        ):
            evil = await nats.connect(server.address("evil:x@"))
            with capture_logs() as logs:
                for number in range(500):
                    await evil.publish("tested.a.echo", b"{}", reply=f"chat.out.{number}")
                assert await ask(evil, "tested.a.echo") == {"success": True}
                await (
                    connection.flush_all()
                )  # all that the server has to say of the others has come
            await evil.close()
        reasons = [line["reason"] for line in logs if line["event"] == "nats error"]
        assert 1 <= len(reasons) <= 5 and "permissions violation for publish" in reasons[0]

    with configured(tmp_path, authorization=users) as server:
        asyncio.run(scenario(server))


def test_a_service_shuts_down_cleanly_while_nats_is_unreachable(tmp_path: Path) -> None:
    """Pending bytes were written to a closed connection: the service exited with a traceback and
    code 1."""

    async def scenario(server: ConfiguredServer) -> None:
        endpoint = Endpoint(name="echo", subject="tested.*.echo", handler=echo)
        async with (
            connect(server.address()) as connection,
            NatsListener(connection, [endpoint], name="tested", version="1.2.3"),
        ):
            server.kill()
            await until(lambda: not connection.is_connected)
            await connection.publish("chat.out", b"to be sent")
        assert connection.is_closed

    with (
        configured(tmp_path) as server,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(scenario(server))


def test_a_rejected_subscription_does_not_affect_the_next() -> None:
    async def scenario() -> None:
        taken: list[str] = []
        async with connect(nats_server().url) as connection, client() as plugin:
            with pytest.raises(BadSubjectError):
                await connection.handle("tested. ", "", lambda subject, *_: subject in taken)
            heard = await connection.subscribe("tested.next")
            await connection.flush_all()
            await plugin.publish("tested.next", b"{}")
            assert (await heard.next_msg(10)).data == b"{}"
        assert not taken

    asyncio.run(scenario())
