"""Each known way to take memory or time from other tenants, tried beside a well-behaved one.

Without a token: pipelining without reading, endless trailers, bodies after a rejection. With one:
unread exports, large lists, a full quota, floods of one key, rejected reads, watches. In every case
the neighbor's p99 stays within 3 x of calm, and the process within 256 MB of its calm size.
"""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.abuse.support.attack import run
from tests.abuse.support.server import ServerProcess
from tests.soak import size

SECONDS = size(6, 60)

pytestmark = [pytest.mark.long, pytest.mark.soak]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as server:
        yield server


# HTTP, without a token


def pipeline_without_reading(server: ServerProcess, stop: threading.Event) -> None:
    with closing(_connected(server)) as connection:
        while not stop.is_set():
            if not _send(connection, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2_000):
                return


def test_pipelined_requests_that_are_never_read_pause_the_connection(server: ServerProcess) -> None:
    """Each answer let in another read of thousands of requests: 2.6 GB from one connection."""
    run(server, pipeline_without_reading, seconds=SECONDS).check()


def endless_trailers(server: ServerProcess, stop: threading.Event) -> None:
    head = (
        b"POST /streamkit/configs/notes HTTP/1.1\r\nHost: x\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    )
    while not stop.is_set():
        with closing(_connected(server)) as connection:
            _send(connection, head)
            while not stop.is_set() and _send(connection, b"a:b\r\n" * 13_107):
                pass


def test_trailers_count_as_part_of_the_head(server: ServerProcess) -> None:
    """Four connections took 2 GB, and health checks 10 s."""
    run(server, *[endless_trailers] * 4, seconds=SECONDS).check()


@pytest.mark.parametrize("pause", [0, 0.3])
def test_a_token_in_a_trailer_is_not_a_header(server: ServerProcess, pause: float) -> None:
    """In one write with the head it was accepted, and a proxy that checks headers never saw it."""
    body = b'{"id":"tr","title":"a","content":"b"}'
    trailer = f"Authorization: Bearer {server.token('mallory')}\r\n\r\n".encode()
    with closing(_connected(server)) as connection:
        head = (
            b"POST /streamkit/configs/notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
        )
        head += b"Content-Type: application/json\r\n\r\n"
        rest = b"%x\r\n%s\r\n0\r\n%s" % (len(body), body, trailer)
        if pause:
            connection.sendall(head)
            time.sleep(pause)
            connection.sendall(rest)
        else:
            connection.sendall(head + rest)
        assert connection.recv(4_096).startswith(b"HTTP/1.1 401 ")


def body_after_rejection(server: ServerProcess, stop: threading.Event) -> None:
    head = (
        b"POST /streamkit/configs/notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    while not stop.is_set():
        with closing(_connected(server)) as connection:
            _send(connection, head)
            while not stop.is_set() and _send(connection, b"1\r\na\r\n" * 10_000):
                pass


def chunk_extension_after_rejection(server: ServerProcess, stop: threading.Event) -> None:
    head = (
        b"POST /streamkit/configs/notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;"
    )
    while not stop.is_set():
        with closing(_connected(server)) as connection:
            _send(connection, head)
            while not stop.is_set() and _send(connection, b"x" * 65_536):
                pass


def test_a_body_is_not_read_for_long_after_its_request_was_rejected(
    server: ServerProcess,
) -> None:
    """It was read for 10 s at full speed: 3 s for a health check."""
    attacks = [body_after_rejection] * 4 + [chunk_extension_after_rejection] * 2
    run(server, *attacks, seconds=SECONDS).check()


# HTTP, with a token


def fill(server: ServerProcess, customer: str, count: int, content: str) -> None:
    headers = {"Authorization": f"Bearer {server.token(customer)}"}
    with httpx.Client(base_url=f"{server.http}/streamkit", headers=headers, timeout=60) as client:
        for start in range(0, count, 100):
            operations = [
                {"op": "create", "config": {"id": f"n{i}", "title": "t", "content": content}}
                for i in range(start, min(count, start + 100))
            ]
            if len(content) * len(operations) > 4_000_000:
                for each in operations:
                    client.post("/configs/notes", json=each["config"]).raise_for_status()
                continue
            client.post("/configs/notes:batch", json={"operations": operations}).raise_for_status()


def repeated(method: str, path: str, customer: str, body: Any = None) -> Any:
    def attack(server: ServerProcess, stop: threading.Event) -> None:
        headers = {"Authorization": f"Bearer {server.token(customer)}"}
        with httpx.Client(base_url=server.http, headers=headers, timeout=60) as client:
            while not stop.is_set():
                with suppress(httpx.HTTPError):
                    client.request(method, path, json=body)

    return attack


def unread_exports(server: ServerProcess, stop: threading.Event) -> None:
    request = (
        f"GET /streamkit/export HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {server.token('mallory')}\r\n\r\n"
    ).encode()
    connections = []
    for _ in range(100):
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.connect(server.address)
        connection.sendall(request)
        connections.append(connection)
    stop.wait()
    for connection in connections:
        connection.close()


def test_exports_that_are_never_read_hold_little_memory(server: ServerProcess) -> None:
    """Each held a page of 500 rows, 16 MB: 100 connections took 1.6 GB."""
    fill(server, "mallory", 40, "x" * 370_000)
    run(server, unread_exports, seconds=SECONDS).check()


@pytest.mark.parametrize(
    "path",
    [
        "/streamkit/configs/notes",
        "/streamkit/configs/notes?since=2999-01-01T00:00:00.000Z",
        "/streamkit/export",
    ],
)
def test_large_lists_of_one_customer_leave_time_for_others(
    server: ServerProcess, path: str
) -> None:
    """SQLite's reads never wait, so a list of 10,000 rows ran in one step of the loop: 4 s."""
    fill(server, "mallory", 10_000, "x" * 700)
    run(server, *[repeated("GET", path, "mallory")] * 16, seconds=SECONDS).check()


def test_a_rejection_for_a_full_quota_is_cheap(tmp_path: Path) -> None:
    """Each measured all rows again: 1.9 s for others."""
    with ServerProcess(tmp_path, streamkit={"quota_keys": 10_000}) as server:
        fill(server, "mallory", 10_000, "x" * 700)
        note = {"title": "t", "content": "one too many"}
        attack = repeated("POST", "/streamkit/configs/notes", "mallory", note)
        run(server, *[attack] * 16, seconds=SECONDS).check()


# NATS


def flood_of_one_key(server: ServerProcess, stop: threading.Event) -> None:
    message = b'PUB db.kv.mallory.set 22\r\n{"key":"k1","value":1}\r\n'
    with closing(socket.create_connection(server.nats_address)) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\n' + message * 65_000)
        stop.wait()


def test_65_000_writes_to_one_key_leave_time_for_others(server: ServerProcess) -> None:
    """3 MB, sent at once, held up every plugin for 24 s."""
    run(server, flood_of_one_key, seconds=SECONDS).check()


def asking(plugin: str, operation: str, body: dict[str, Any]) -> Any:
    """Eight requests at a time over one raw connection; reads and drops the answers."""
    data = json.dumps(body).encode()
    message = f"PUB db.kv.{plugin}.{operation} answers {len(data)}\r\n".encode() + data + b"\r\n"

    def attack(server: ServerProcess, stop: threading.Event) -> None:
        with closing(socket.create_connection(server.nats_address)) as connection:
            connection.settimeout(1)
            connection.sendall(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\n')
            connection.sendall(message * 8)
            while not stop.is_set():
                with suppress(TimeoutError):
                    if count := connection.recv(1 << 20).count(b"MSG answers"):
                        connection.sendall(message * count)

    return attack


def put_values(server: ServerProcess, plugin: str, count: int, bytes_each: int) -> None:
    value = json.dumps("x" * (bytes_each - 2))
    with closing(socket.create_connection(server.nats_address)) as connection:
        connection.settimeout(60)
        connection.sendall(b'CONNECT {"verbose":false}\r\nSUB answers 1\r\n')
        for number in range(count):
            data = f'{{"key":"k{number:05d}","value":{value}}}'.encode()
            connection.sendall(
                f"PUB db.kv.{plugin}.set answers {len(data)}\r\n".encode() + data + b"\r\n"
            )
            while b"MSG answers" not in connection.recv(65_536):
                pass


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("mget", {"keys": [f"k{number:05d}" for number in range(1_000)]}),
        ("scan", {"limit": 10_000}),
        ("list", {"limit": 10_000}),
    ],
)
def test_large_reads_of_one_plugin_leave_time_for_others(
    server: ServerProcess, operation: str, body: dict[str, Any]
) -> None:
    """`mget` read 64 MB in order to reject it: 1.2 s for others, 125 MB."""
    put_values(server, "mallory", 1_000, 64_000)
    run(server, asking("mallory", operation, body), seconds=SECONDS).check()


def watches(*, reads: bool, listeners: int) -> Any:
    def attack(server: ServerProcess, stop: threading.Event) -> None:
        connections = []
        for number in range(listeners):
            connection = socket.create_connection(server.nats_address)
            connection.settimeout(1)
            connection.sendall(b'CONNECT {"verbose":false}\r\n')
            subject = f"_INBOX.mallory{number}"
            connection.sendall(f"SUB {subject}.> 1\r\n".encode())
            for watch in range(64 // listeners):
                data = json.dumps({"prefix": "", "subject": f"{subject}.{watch}"}).encode()
                connection.sendall(
                    f"PUB db.kv.mallory.watch {subject}.answer{watch} {len(data)}\r\n".encode()
                    + data
                    + b"\r\n"
                )
            connections.append(connection)
        writers = [asking("mallory", "set", {"key": f"w{n}", "value": "x" * 60_000}) for n in "12"]
        threads = [threading.Thread(target=writer, args=(server, stop)) for writer in writers]
        for thread in threads:
            thread.start()
        while not stop.is_set():
            for connection in connections:
                if reads:
                    connection.setblocking(False)
                    with suppress(BlockingIOError):
                        connection.recv(1 << 20)
            if not reads:
                stop.wait(0.1)
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.close()

    return attack


@pytest.mark.parametrize("reads", [True, False], ids=["read", "never-read"])
def test_pushes_of_watches_do_not_delay_answers(server: ServerProcess, reads: bool) -> None:
    """64 watches of one plugin multiplied its writes by 64, and all answers waited in line."""
    run(server, watches(reads=reads, listeners=4), seconds=SECONDS).check()


# Helpers


def _connected(server: ServerProcess) -> socket.socket:
    connection = socket.create_connection(server.address)
    connection.settimeout(1)
    return connection


def _send(connection: socket.socket, data: bytes) -> bool:
    """Send; True if the connection is still open, also when the peer has stopped reading."""
    try:
        connection.sendall(data)
    except TimeoutError:
        return True
    except OSError:
        return False
    return True
