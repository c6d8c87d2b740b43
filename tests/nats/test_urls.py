"""NATS URLs with TLS or a password: scheme and user apply to every server."""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from keyhouse import open_engine
from keyhouse.errors import KeyhouseError, UnavailableError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import ConnectionLog, connect
from keyhouse.nats.errors import connection_problem
from keyhouse.nats.server import ReservedPort
from keyhouse_rosey.remote import connect as ask
from tests.support.nats_server_configs import ConfiguredServer, configured
from tests.support.polling import until

PASSWORD = "p@ss/word:%"
SPELLED = "p%40ss%2Fword%3A%25"


async def served(url: str) -> None:
    async with connect(url) as connection:
        assert connection.is_connected


async def stored(url: str) -> None:
    await (await open_engine(f"{url}/?bucket=x")).close()


async def asked(url: str) -> None:
    await (await ask(url, "trivia", None)).close()


EVERYONE = pytest.mark.parametrize("everyone", [served, stored, asked])
Connecting = Callable[[str], Awaitable[None]]


@EVERYONE
def test_tls_urls_never_send_a_password_in_clear_text(
    everyone: Connecting,
) -> None:
    """The driver encrypts only if the server requires it: a man in the middle could remove that
    flag, and `tls://` did not help."""
    heard = b""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        writer.write(
            b"INFO %b\r\n" % json.dumps({"version": "2.15.1", "max_payload": 1_048_576}).encode()
        )
        heard += await reader.read(1_024)
        writer.close()

    async def main() -> KeyhouseError:
        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(UnavailableError) as refused:
            await everyone(f"tls://keyhouse:secret@127.0.0.1:{port}")
        server.close()
        return refused.value

    error = asyncio.run(main())
    assert error.sentence.startswith("The NATS server does not offer TLS, which tls:// requires")
    assert b"secret" not in heard


Stranger = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def no_greeting(everyone: Connecting, stranger: Stranger) -> None:
    server = await asyncio.start_server(stranger, "127.0.0.1", 0)
    with pytest.raises(UnavailableError, match="does not greet as a NATS server does"):
        await everyone(f"nats://keyhouse:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}")
    server.close()


@EVERYONE
def test_a_server_that_is_not_nats_is_not_reported_as_a_bad_password(everyone: Connecting) -> None:
    """`--nats` named an HTTP port, and the operator was sent to check user and password."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    asyncio.run(no_greeting(everyone, pretend))


@EVERYONE
def test_a_rejected_user_is_reported_although_the_connection_is_also_reset(
    everyone: Connecting,
) -> None:
    """The server closes the connection with bytes of the client unread, which resets it. The
    command line then reported the reset and advised to start a server."""

    async def reject(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"version": "2.15.1", "auth_required": true}\r\n')
        await reader.readuntil(b"PING\r\n")
        writer.write(b"-ERR 'Authorization Violation'\r\n")
        peer = writer.get_extra_info("socket")
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(reject, "127.0.0.1", 0)
        with pytest.raises(UnavailableError, match="The NATS server rejects"):
            await everyone(f"nats://keyhouse:secret@127.0.0.1:{server.sockets[0].getsockname()[1]}")
        server.close()

    asyncio.run(main())


FOREIGN_GREETINGS = (b"x" * 300_000, b"xINFO\r\n", b"INFO []\r\n", b'INFO {"connect_urls": 5}\r\n')
"""None is a whole line of a NATS server. The driver fails at each in its own, unforeseen way."""


@EVERYONE
@pytest.mark.parametrize(
    "greeting", FOREIGN_GREETINGS, ids=lambda greeting: greeting[:24].decode().strip()
)
def test_an_unknown_greeting_is_reported(everyone: Connecting, greeting: bytes) -> None:
    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting)
        await reader.read()
        writer.close()

    asyncio.run(no_greeting(everyone, pretend))


def test_reconnecting_survives_servers_that_do_not_speak_nats() -> None:
    """One of them stopped the reconnecting task, and the service stayed disconnected until a
    restart. Servers that did not disconnect kept their connection: ten a second, until no file
    descriptor was left."""
    left = [None, *FOREIGN_GREETINGS, None]
    ended: list[bytes] = []

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        greeting = left.pop(0) if left else None
        writer.write(greeting or b'INFO {"version": "2.15.1"}\r\n')
        if greeting is None:
            await reader.readuntil(b"PING\r\n")
            writer.write(b"PONG\r\n")
            if left:
                writer.close()
                return
        with suppress(ConnectionResetError):  # the client has not read all of it
            await reader.read()
        ended.append(greeting or b"")
        writer.close()

    async def main() -> None:
        server = await asyncio.start_server(pretend, "127.0.0.1", 0)
        client = NatsClient()

        async def hear(error: Exception) -> None: ...

        await client.connect(
            [f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"],
            reconnect_time_wait=0,
            max_reconnect_attempts=-1,
            error_cb=hear,
        )
        try:
            async with asyncio.timeout(30):
                await until(lambda: not left)
                await until(lambda: len(ended) >= len(FOREIGN_GREETINGS))
            assert sorted(ended) == sorted(FOREIGN_GREETINGS)
        finally:
            await client.close()
            server.close()

    asyncio.run(main())


def test_a_client_that_is_closed_while_it_reconnects_stays_closed(tmp_path: Path) -> None:
    """`wait_for` of Python 3.11 loses a cancellation that comes at the same time as its result. The
    driver cancels once, so the task continued to connect, and did not stop."""

    async def reconnect() -> None:
        for _ in range(3):
            with suppress(asyncio.CancelledError):  # it is lost
                await asyncio.Event().wait()
        await asyncio.Event().wait()

    async def main(server: ConfiguredServer) -> None:
        client = NatsClient()
        await client.connect(server.url)
        client._reconnection_task = asyncio.create_task(reconnect())
        await asyncio.sleep(0)
        async with asyncio.timeout(30):
            await client.close()
        assert client.is_closed and client._reconnection_task.cancelled()

    with configured(tmp_path) as server:
        asyncio.run(main(server))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a self-signed certificate for this machine."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(days=1))
        .not_valid_after(datetime.now(UTC) + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


@pytest.fixture(
    scope="module", params=[False, True], ids=["encrypted only", "encrypted where asked for"]
)
def server(
    certificate: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ConfiguredServer]:
    with configured(
        tmp_path_factory.mktemp("nats"),
        tls={"cert_file": str(certificate / "cert.pem"), "key_file": str(certificate / "key.pem")},
        allow_non_tls=request.param,
        authorization={"users": [{"user": "keyhouse", "password": PASSWORD}]},
    ) as running:
        yield running


@EVERYONE
def test_a_trusted_tls_server_accepts_any_password_characters(
    everyone: Connecting,
    server: ConfiguredServer,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = server.address(f"keyhouse:{SPELLED}@").replace("nats://", "tls://")
    with pytest.raises(
        UnavailableError, match=r"certificate is not trusted: set SSL_CERT_FILE to the file"
    ):
        asyncio.run(everyone(url))  # type: ignore[arg-type]  # each is a coroutine
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    asyncio.run(everyone(url))  # type: ignore[arg-type]


def test_a_handler_receives_many_large_messages_over_tls_in_order(
    server: ConfiguredServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS as without it: handled as they are read, and never read ahead without a limit."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    url = server.address(f"keyhouse:{SPELLED}@").replace("nats://", "tls://")
    count, filler = 200, b"x" * 100_000
    numbers: list[int] = []

    async def scenario() -> None:
        done = asyncio.Event()

        def handler(subject: str, reply: str, data: bytes) -> None:
            assert data.endswith(filler)
            numbers.append(int(data[:4]))
            if len(numbers) == count:
                done.set()

        async with connect(url) as receiver, connect(url) as sender:
            await receiver.handle("numbers", "", handler)
            await receiver.flush_all()
            for number in range(count):
                await sender.publish("numbers", b"%04d" % number + filler)
            async with asyncio.timeout(60):
                await done.wait()

    asyncio.run(scenario())
    assert numbers == list(range(count))


def test_a_server_that_requires_client_certificates_is_reported_as_such() -> None:
    assert "is not trusted" in str(
        connection_problem(ssl.SSLCertVerificationError("unable to get local issuer certificate"))
    )
    assert "must not require client certificates" in str(
        connection_problem(ssl.SSLError("alert certificate required"))
    )
    assert connection_problem(OSError("refused")) is None and connection_problem(None) is None


def test_errors_after_the_connect_timeout_are_ignored() -> None:
    """An aborted connection reports an error when it is closed: the result was a timeout instead of
    the NATS error."""

    async def main() -> None:
        state = ConnectionLog(NatsClient())
        async with asyncio.timeout(1) as state.timeout:
            pass
        await state.error(error := ssl.SSLError("broken off"))
        assert state.last_error is error

    asyncio.run(main())


@EVERYONE
def test_scheme_and_user_apply_to_every_server_of_a_url(
    everyone: Connecting,
    server: ConfiguredServer,
    certificate: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The second server was connected without a password: a cluster lost its first server, and the
    service with it."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    gone = ReservedPort()
    address = f"tls://keyhouse:{SPELLED}@127.0.0.1:{gone.number},127.0.0.1:{server.port}"
    asyncio.run(everyone(address))  # type: ignore[arg-type]


@EVERYONE
@pytest.mark.parametrize("host", ["127.0.0.1:4222.", "127.0.0.1:x", "127.0.0.1:99999999", ":4222"])
def test_an_invalid_address_is_an_error_with_an_example(everyone: Connecting, host: str) -> None:
    """It ended with a traceback of the driver."""
    with pytest.raises(KeyhouseError) as caught:
        asyncio.run(everyone(f"nats://user:secret@{host}"))  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)
