"""Every route of the OpenAPI documents, as attacks on memory and time of others.

Routes are read from the running server, so that a new one is attacked without being listed here.
"""

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any, NamedTuple

import httpx

from tests.abuse.attacks import RECONNECT_SECONDS, fill, put_values
from tests.abuse.support.attack import Client
from tests.abuse.support.server import SECRET, ServerProcess

SYSTEMS = ("streamkit", "rosey")
PLAIN = ("/health", "/ready", "/metrics", "/docs")
TABLES: dict[str, dict[str, Any]] = {"rosey": {"jwt_secret": SECRET}}

HELD_CONNECTIONS = 32
REPEATING_CONNECTIONS = 16
VALUES = {"type": "notes", "id": "n0", "plugin": "mallory", "key": "k00000"}
"""Path and query parameters; a required one of another name has the value `x`."""


class RouteCall(NamedTuple):
    """One request of a route. `tenant` is its own, so that no route uses up another's rate."""

    method: str
    path: str
    tenant: str
    is_operator: bool
    body: bytes | None

    def head(self, server: ServerProcess) -> dict[str, str]:
        token = server.operator_token() if self.is_operator else server.token(self.tenant)
        headers = {"Host": "x", "Authorization": f"Bearer {token}"}
        if self.body is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(self.body))}
        return headers

    def raw(self, server: ServerProcess) -> bytes:
        lines = [f"{name}: {value}" for name, value in self.head(server).items()]
        head = "\r\n".join([f"{self.method} {self.path} HTTP/1.1", *lines, "", ""])
        return head.encode() + (self.body or b"")


def route_calls(server: ServerProcess) -> list[RouteCall]:
    """Return a call for every route that the server documents, and for those without a document."""
    calls = [RouteCall("GET", path, "mallory", False, None) for path in PLAIN]
    for system in SYSTEMS:
        document = httpx.get(f"{server.http}/{system}/openapi.json").raise_for_status().json()
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if method != "parameters":
                    call = _call(system, path, method.upper(), operation, f"mallory{len(calls)}")
                    calls.append(call)
    return calls


def _call(system: str, path: str, method: str, operation: dict[str, Any], tenant: str) -> RouteCall:
    query = []
    for parameter in operation.get("parameters", []):
        name = parameter["name"]
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", VALUES.get(name, "x"))
        elif parameter["in"] == "query" and parameter.get("required"):
            query.append(f"{name}={VALUES.get(name, 'x')}")
    body = None
    if "requestBody" in operation:
        (content,) = list(operation["requestBody"]["content"].values())[:1]
        body = json.dumps(content.get("example", {})).encode()
    scopes = [
        scope
        for each in operation.get("security", [])
        for names in each.values()
        for scope in names
    ]
    target = f"/{system}{path}" + ("?" + "&".join(query) if query else "")
    return RouteCall(method, target, tenant, "operator" in scopes, body)


def prepare(server: ServerProcess, calls: list[RouteCall]) -> None:
    """Store what makes reads expensive: some hundred configs for each tenant, values of a plugin."""
    for call in calls:
        if call.path.startswith("/streamkit/"):
            fill(server, call.tenant, 300, "x" * 700)
    put_values(server, "mallory", 300, 1_000)


def clients(call: RouteCall) -> list[Client]:
    """Return clients that pipeline without reading, hold responses, and repeat."""
    return [_pipelining(call), _holding(call), *[_repeating(call)] * REPEATING_CONNECTIONS]


def _pipelining(call: RouteCall) -> Client:
    def attack(server: ServerProcess, stop: threading.Event) -> None:
        requests = call.raw(server) * 50
        while not stop.is_set():
            with closing(_connected(server)) as connection, suppress(OSError):
                while not stop.is_set():
                    with suppress(TimeoutError):
                        connection.sendall(requests)
            stop.wait(RECONNECT_SECONDS)

    return attack


def _holding(call: RouteCall) -> Client:
    def attack(server: ServerProcess, stop: threading.Event) -> None:
        connections = [_connected(server, receive_bytes=4_096) for _ in range(HELD_CONNECTIONS)]
        for connection in connections:
            with suppress(OSError):
                connection.sendall(call.raw(server))
        stop.wait()
        for connection in connections:
            connection.close()

    return attack


def _repeating(call: RouteCall) -> Client:
    def attack(server: ServerProcess, stop: threading.Event) -> None:
        headers = call.head(server)
        while not stop.is_set():
            host, port = server.address
            with (
                closing(http.client.HTTPConnection(host, port, timeout=10)) as connection,
                suppress(OSError, http.client.HTTPException),
            ):
                for _ in _until(stop):
                    connection.request(call.method, call.path, call.body, headers)
                    connection.getresponse().read()
            stop.wait(RECONNECT_SECONDS)

    return attack


def _until(stop: threading.Event) -> Iterator[None]:
    while not stop.is_set():
        yield


def _connected(server: ServerProcess, *, receive_bytes: int = 0) -> socket.socket:
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(1)
    connection.connect(server.address)
    return connection
