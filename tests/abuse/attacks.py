"""Known ways to take memory or time from other tenants.

`ATTACKS` names each one: what to store first, and the clients to run until told to stop.
`test_attacks.py` asserts the bounds of those that are closed; `python -m tests.abuse` measures all.
"""

import json
import secrets
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx

from tests.abuse.support.attack import RECONNECT_SECONDS, Client, Stop, repeat
from tests.abuse.support.server import SECRET, SYSTEMS, ServerProcess
from tests.sizes import size

QUOTA: Final = size(2_000, 10_000, 10_000)
"""Notes of a tenant whose quota is full."""


class Attack(NamedTuple):
    """`tables` are settings; `prepare` stores what the attack needs; `clients` run in threads.
    `schemas` are served beside the systems."""

    clients: Sequence[Client]
    prepare: Callable[[ServerProcess], None] | None = None
    tables: Mapping[str, dict[str, Any]] = {}
    schemas: Sequence[str] = ()

    def server(self, folder: Path) -> ServerProcess:
        return ServerProcess(folder, *SYSTEMS, *self.schemas, **self.tables)


# HTTP, without a token


def pipeline_without_reading(server: ServerProcess, stop: Stop) -> None:
    with closing(_connected(server, stop)) as connection:
        while not stop.is_set():
            if not _send(connection, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n" * 2_000):
                return


def endless_body(start: bytes, piece: bytes) -> Client:
    """Send a chunked request that starts like this and repeats a piece; reconnect when closed."""
    head = (
        b"POST /streamkit/configs/notes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    )

    def attack(server: ServerProcess, stop: Stop) -> None:
        while not stop.is_set():
            with closing(_connected(server, stop)) as connection:
                _send(connection, head + start)
                while not stop.is_set() and _send(connection, piece):
                    pass
            stop.wait(RECONNECT_SECONDS)

    return attack


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


def put_documents(server: ServerProcess) -> None:
    """Store small documents, and large ones after them."""
    headers = {"Authorization": f"Bearer {server.token('mallory')}"}
    large = ["a"] * 90_000
    with httpx.Client(base_url=f"{server.http}/documents", headers=headers, timeout=60) as client:
        for number in range(60):
            client.put(f"/records/doc/a{number:02d}", json={"words": []}).raise_for_status()
        for number in range(50):
            client.put(f"/records/doc/b{number:02d}", json={"words": large}).raise_for_status()


def repeated(method: str, path: str, customer: str, body: Any = None) -> Client:
    data = None if body is None else json.dumps(body).encode()

    def attack(server: ServerProcess, stop: Stop) -> None:
        headers = {
            "Authorization": f"Bearer {server.token(customer)}",
            "Content-Type": "application/json",
        }
        repeat(stop, server, method, path, data, headers)

    return attack


def unread_exports(server: ServerProcess, stop: Stop) -> None:
    request = (
        f"GET /streamkit/export HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {server.token('exporter')}\r\n\r\n"
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


# NATS


def flood_of_one_key(server: ServerProcess, stop: Stop) -> None:
    message = b'PUB db.kv.mallory.set 22\r\n{"key":"k1","value":1}\r\n'
    with closing(socket.create_connection(server.nats_address)) as connection:
        connection.sendall(b'CONNECT {"verbose":false}\r\n')
        while not stop.is_set():
            connection.sendall(message * 65_000)
            stop.wait(60)


def asking(plugin: str, operation: str, body: dict[str, Any]) -> Client:
    return asking_at(f"db.kv.{plugin}.{operation}", body)


def asking_at(subject: str, body: dict[str, Any]) -> Client:
    """Eight requests at a time over one raw connection; reads and drops the answers."""
    data = json.dumps(body).encode()
    answers = f"answers-{secrets.token_hex(4)}"
    head = f"PUB {subject} {answers} {len(data)}\r\n"
    message = head.encode() + data + b"\r\n"

    def attack(server: ServerProcess, stop: Stop) -> None:
        while not stop.is_set():
            # a message that was sent in part ends the connection
            with (
                suppress(OSError),
                closing(socket.create_connection(server.nats_address)) as connection,
            ):
                connection.settimeout(1)
                connection.sendall(server.nats_sign_in(subject) + f"SUB {answers} 1\r\n".encode())
                connection.sendall(message * 8)
                while not stop.is_set() and (received := _received(connection)) is not None:
                    connection.sendall(message * received.count(f"MSG {answers}".encode()))
            stop.wait(RECONNECT_SECONDS)

    return attack


def _received(connection: socket.socket) -> bytes | None:
    """Return what has arrived, empty if nothing did in time; None at the end of the connection."""
    try:
        return connection.recv(1 << 20) or None
    except TimeoutError:
        return b""


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


def watches(*, reads: bool, listeners: int) -> Client:
    def attack(server: ServerProcess, stop: Stop) -> None:
        connections = []
        for number in range(listeners):
            connection = socket.create_connection(server.nats_address)
            connection.settimeout(1)
            connection.sendall(b'CONNECT {"verbose":false}\r\n')
            subject = f"_INBOX_mallory.{number}"
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
                    with suppress(OSError):  # nothing has arrived, or the server disconnected it
                        connection.recv(1 << 20)
            if not reads:
                stop.wait(0.1)
        for thread in threads:
            thread.join()
        for connection in connections:
            connection.close()

    return attack


# Helpers


def _connected(server: ServerProcess, stop: Stop) -> socket.socket:
    return stop.disconnects(socket.create_connection(server.address))


def _send(connection: socket.socket, data: bytes) -> bool:
    """Send, and return whether the connection is still open."""
    with suppress(OSError):
        connection.sendall(data)
        return True
    return False


# All of them


def fill_quota(server: ServerProcess) -> None:
    fill(server, "mallory", QUOTA, "x" * 700)


def put_large_values(server: ServerProcess) -> None:
    put_values(server, "mallory", 1_000, 64_000)


def _large_list(path: str) -> Attack:
    return Attack(
        [repeated("GET", path, "mallory")] * 16, fill_quota, {"streamkit": {"quota_keys": QUOTA}}
    )


def _large_read(operation: str, body: dict[str, Any]) -> Attack:
    return Attack([asking("mallory", operation, body)], put_large_values)


def _large_documents(method: str, path: str, body: Any = None) -> Attack:
    return Attack(
        [repeated(method, f"/documents{path}", "mallory", body)] * 16,
        put_documents,
        {"documents": {"jwt_secret": SECRET}},
        ("tests.abuse.support.documents:DOCUMENTS",),
    )


ATTACKS: Final[dict[str, Attack]] = {
    "pipelining without reading": Attack([pipeline_without_reading]),
    "endless trailers": Attack([endless_body(b"0\r\n", b"a:b\r\n" * 13_107)] * 4),
    "a body after its rejection": Attack(
        [endless_body(b"", b"1\r\na\r\n" * 10_000)] * 4 + [endless_body(b"1;", b"x" * 65_536)] * 2
    ),
    "unread exports": Attack(
        [unread_exports], lambda server: fill(server, "exporter", 40, "x" * 370_000)
    ),
    "large lists": _large_list("/streamkit/configs/notes"),
    "large lists since": _large_list("/streamkit/configs/notes?since=2999-01-01T00:00:00.000Z"),
    "exports": _large_list("/streamkit/export"),
    "large documents after small ones": _large_documents("GET", "/records/doc?limit=500"),
    "one large document at many addresses": _large_documents(
        "POST",
        "/get-many/doc",
        {"addresses": [{"id": "a00"}] * 50 + [{"id": "b00"}] * 450},
    ),
    "writes over a full quota": Attack(
        [repeated("POST", "/streamkit/configs/notes", "mallory", {"title": "t", "content": "c"})]
        * 16,
        fill_quota,
        {"streamkit": {"quota_keys": QUOTA}},
    ),
    "numbers that are slow to parse": Attack(
        [repeated("POST", "/streamkit/configs/notes", "mallory", {"x": [1e-320] * 90_000})] * 4
        + [asking("mallory", "set", {"key": "k", "value": [1e-320] * 90_000})]
    ),
    "65,000 writes to one key": Attack([flood_of_one_key]),
    "mget beyond the reply limit": _large_read(
        "mget", {"keys": [f"k{number:05d}" for number in range(1_000)]}
    ),
    "large scans": _large_read("scan", {"limit": 10_000}),
    "large key lists": _large_read("list", {"limit": 10_000}),
    "64 watches that read": Attack([watches(reads=True, listeners=4)]),
    "64 watches that never read": Attack([watches(reads=False, listeners=4)]),
}


def all_of(attacks: Sequence[Attack]) -> Attack:
    """Return every client of these attacks, for one server."""
    prepares = dict.fromkeys(attack.prepare for attack in attacks if attack.prepare is not None)

    def prepare(server: ServerProcess) -> None:
        for each in prepares:
            each(server)

    return Attack(
        [client for attack in attacks for client in attack.clients],
        prepare,
        {name: table for attack in attacks for name, table in attack.tables.items()},
        [*dict.fromkeys(schema for attack in attacks for schema in attack.schemas)],
    )


ALL_AT_ONCE: Final = all_of([*ATTACKS.values()])
"""Every client of every attack, by one tenant and one plugin."""
