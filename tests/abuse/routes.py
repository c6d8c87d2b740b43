"""Every route of the running service, as attacks on memory and time of others.

Routes are those of its routing table, so that a new one is attacked without being listed here.
"""

import json
import re
import socket
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx

from tests.abuse.attacks import fill, put_values
from tests.abuse.support.attack import RECONNECT_SECONDS, Client, Stop, repeat
from tests.abuse.support.server import SECRET, ServerProcess
from tests.sizes import size
from tests.support.polling import wait_until

TABLES: dict[str, dict[str, Any]] = {
    "history": {"jwt_secret": SECRET},
    "recipes": {"jwt_secret": SECRET},
    "names": {"jwt_secret": SECRET},
    "studio": {"jwt_secret": SECRET},
    "playlist": {"delivery": "console", "admins": ["mallory"]},
}

HELD_CONNECTIONS = size(8, 32, 32)
REPEATING_CONNECTIONS = size(2, 16, 16)
BOOKS = size(40, 200, 200)
EVENTS = size(20, 100, 100)
VALUES = {
    "type": "notes",
    "id": "n0",
    "plugin": "mallory",
    "key": "k00000",
    "system": "streamkit",
    "space": "mallory0",
}
"""Path and query parameters; a required one of another name has the value `x`."""

PASSWORD = "correct horse battery"


class RouteCall(NamedTuple):
    """One request of a route. `tenant` is its own, so that no route uses up another's rate."""

    method: str
    path: str
    tenant: str
    token: str
    body: bytes | None
    media_type: str
    route: dict[str, Any]

    def head(self) -> dict[str, str]:
        headers = {"Host": "x"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        if self.body is not None:
            headers |= {"Content-Type": self.media_type, "Content-Length": str(len(self.body))}
        return headers

    def raw(self) -> bytes:
        lines = [f"{name}: {value}" for name, value in self.head().items()]
        head = "\r\n".join([f"{self.method} {self.path} HTTP/1.1", *lines, "", ""])
        return head.encode() + (self.body or b"")


# Credentials


def _audiobooks_token(server: ServerProcess) -> str:
    """Return an API key of the first admin, whom this creates."""
    api = f"{server.http}/audiobooks/api/v1/auth"
    who = {"username": "mallory", "password": PASSWORD}
    httpx.post(f"{api}/setup", json=who, timeout=60).raise_for_status()
    login = httpx.post(f"{api}/login", json=who, timeout=60).raise_for_status().json()
    headers = {"Authorization": f"Bearer {login['data']['token']}"}
    made = httpx.post(f"{api}/api-keys", json={"name": "attack"}, headers=headers, timeout=60)
    return str(made.raise_for_status().json()["data"]["key"])


def _playlist_token(server: ServerProcess) -> str:
    """Return the session of an admin, who signs in with the code that the service prints."""
    api = f"{server.http}/playlist/api/v1/auth/otp"
    httpx.post(f"{api}/request", json={"username": "mallory"}, timeout=60).raise_for_status()
    codes = wait_until(lambda: re.findall(r"Code for mallory: (\w{8})", server.log.read_text()))
    who = {"username": "mallory", "otp": codes[-1]}
    verified = httpx.post(f"{api}/verify", json=who, timeout=60)
    return next(iter(verified.raise_for_status().cookies.values()))


def _studio_token(server: ServerProcess) -> str:
    return server.operator_token("studio:read studio:write studio:admin")


TOKENS: dict[str, Callable[[ServerProcess], str]] = {
    "audiobooks": _audiobooks_token,
    "playlist": _playlist_token,
    "studio": _studio_token,
}
"""How to sign in. Others have a token of each call's own tenant."""


# Calls


def route_calls(server: ServerProcess, system: str) -> list[RouteCall]:
    """Return a call for every route of a system; "": those without a prefix, as `/health`."""
    routes = served_routes(server, system)
    shared = TOKENS[system](server) if system in TOKENS else ""
    id = _stored_books(server, shared) if system == "audiobooks" else ""
    calls = [
        _call(server, route, f"mallory{number}", shared, id) for number, route in enumerate(routes)
    ]
    return sorted(calls, key=lambda call: "logout" in call.path)  # it ends the session of others


def served_routes(server: ServerProcess, system: str) -> list[dict[str, Any]]:
    """Return the routes of a system, as `listing_server` writes them."""
    return [route for route in server.routes if route["system"] == system]


def served_systems(server: ServerProcess) -> set[str]:
    return {route["system"] for route in server.routes}


def _call(
    server: ServerProcess, route: dict[str, Any], tenant: str, token: str, id: str
) -> RouteCall:
    values = path_values(route, tenant, id)
    path = re.sub(r"\{(\w+)\}", lambda field: values[field[1]], route["path"])
    if route["query"]:
        path += "?" + urlencode({name: VALUES.get(name, "x") for name in route["query"]})
    body, media_type = None, "application/json"
    if route["is_form"]:
        media_type = "application/x-www-form-urlencoded"
        body = urlencode(route["example"] or {"x": "x"}).encode()
    elif route["has_body"]:
        body = json.dumps(route["example"] or {}).encode()
    own = "" if route["scope"] is None else token or server.token(tenant)
    return RouteCall(route["method"], path, tenant, own, body, media_type, route)


def path_values(route: dict[str, Any], tenant: str, id: str = "") -> dict[str, str]:
    """Return a value for each field of the path."""
    values = VALUES | {"profile": tenant, "id": id or VALUES["id"]}
    for name, known in route["known"].items():
        values[name] = values[name] if values.get(name) in known else known[0]
    return {name: values.get(name, "x") for name in re.findall(r"\{(\w+)\}", route["path"])}


def _stored_books(server: ServerProcess, token: str) -> str:
    """Store some books, and return the id of the last."""
    headers = {"Authorization": f"Bearer {token}"}
    api = f"{server.http}/audiobooks/api/v1"
    with httpx.Client(base_url=api, headers=headers, timeout=60) as client:
        for number in range(BOOKS):
            book = {"title": f"Book {number}", "description": "x" * 1_000}
            stored = client.post("/books", json=book).raise_for_status().json()
    return str(stored["data"]["id"])


def prepare(server: ServerProcess, calls: list[RouteCall]) -> None:
    """Store what makes reads expensive: some hundred records per tenant, values of a plugin."""
    for call in calls:
        if call.path.startswith("/streamkit/") and call.token:
            fill(server, call.tenant, 300, "x" * 700)
        elif call.path.startswith("/history/profiles/") and call.token:
            _watch(server, call)
    put_values(server, "mallory", 300, 1_000)


def _watch(server: ServerProcess, call: RouteCall) -> None:
    """Store what a profile has watched."""
    events = [
        {
            "assetId": f"{number}",
            "assetType": "tv-episode",
            "totalTime": 6_604,
            "progress": 2_518,
            "updateTime": "2021-01-27T23:37:42.155Z",
        }
        for number in range(EVENTS)
    ]
    url = f"{server.http}/history/profiles/{call.tenant}/events"
    headers = {"Authorization": f"Bearer {call.token}"}
    httpx.post(url, json={"events": events}, headers=headers, timeout=60).raise_for_status()


def clients(call: RouteCall) -> list[Client]:
    """Return clients that pipeline without reading, hold responses, and repeat."""
    return [_pipelining(call), _holding(call), *[_repeating(call)] * REPEATING_CONNECTIONS]


def _pipelining(call: RouteCall) -> Client:
    def attack(server: ServerProcess, stop: Stop) -> None:
        requests = call.raw() * 50
        while not stop.is_set():
            with suppress(OSError), closing(_connected(server, stop)) as connection:
                while not stop.is_set():
                    connection.sendall(requests)
            stop.wait(RECONNECT_SECONDS)

    return attack


def _holding(call: RouteCall) -> Client:
    def attack(server: ServerProcess, stop: Stop) -> None:
        with ExitStack() as held:
            for _ in range(HELD_CONNECTIONS):
                with suppress(OSError):
                    connection = _connected(server, stop, receive_bytes=4_096)
                    held.enter_context(connection).sendall(call.raw())
            stop.wait()

    return attack


def _repeating(call: RouteCall) -> Client:
    return lambda server, stop: repeat(stop, server, call.method, call.path, call.body, call.head())


def _connected(server: ServerProcess, stop: Stop, *, receive_bytes: int = 0) -> socket.socket:
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    try:
        connection.connect(server.address)
    except OSError:
        connection.close()
        raise
    return stop.disconnects(connection)
