"""Messages that the server lets through and the driver can't read: none of them may silence the service."""

import asyncio
import re

import pytest

from keyhouse.serve.nats import Endpoint, Request
from tests.engines.nats_servers import nats_server
from tests.serve.nats_faces import ask, client, face


async def echo(request: Request) -> bytes:
    return b'{"success":true}'


async def send(protocol: bytes) -> None:
    """As a client does that keeps to nothing but the protocol. When this returns, the server has passed it on."""
    found = re.fullmatch(r"nats://([^:]+):(\d+)", nats_server().url)
    assert found is not None
    reader, writer = await asyncio.open_connection(found[1], int(found[2]))
    writer.write(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\n' + protocol + b"PING\r\n")
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
        pytest.param(b"PUB tested.\xff\xfe.echo _INBOX.x 2\r\n{}\r\n", id="a subject that is not UTF-8"),
        pytest.param(b"PUB tested.a.echo _INBOX.\xff 2\r\n{}\r\n", id="a reply subject that is not UTF-8"),
        pytest.param(b"PUB tested.a\x0cb.echo _INBOX.x 2\r\n{}\r\n", id="a form feed in the subject"),
        pytest.param(b"PUB tested.a.echo _INBOX.a\x0bb 2\r\n{}\r\n", id="a vertical tab in the reply subject"),
        pytest.param(with_header(b"NATS/1.0 \xff\xff\r\n\r\n"), id="a status that is not UTF-8"),
        pytest.param(with_header(b"NATS/1.0\r\n\xfe: \xff\r\n\r\n"), id="a header that is not UTF-8"),
        pytest.param(with_header(b"NATS/1.0\r\nno colon\r\n\r\n"), id="a header without a colon"),
        pytest.param(with_header(b"N\r\n\r\n"), id="a header that is too short"),
    ],
)
def test_no_message_silences_the_service(protocol: bytes) -> None:
    async def scenario() -> None:
        async with face([Endpoint(name="echo", subject="tested.*.echo", handler=echo)]) as serving, client() as plugin:
            connection = serving._client
            await send(protocol * 3)
            assert await ask(plugin, "tested.a.echo") == {"success": True}
            assert connection.stats["reconnects"] == 0

    asyncio.run(scenario())
