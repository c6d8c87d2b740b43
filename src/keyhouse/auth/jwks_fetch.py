"""Where a key set comes from: a file, or a URL that is fetched within a size and a time. It knows nothing of keys.

A socket's timeout is of one read, and a source that sends a byte now and then keeps to it for days. So a fetch has an end of
its own, at which its connection is cut off.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import (
    AbstractHTTPHandler,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
)

from keyhouse.errors import UsageError
from keyhouse.limits import JWKS_BYTES_MAX, JWKS_SECONDS_MAX

_CUT_AGAIN_SECONDS: Final = 0.1


def source(place: str) -> Callable[[], bytes]:
    """What reads a key set: a file by its path, or a URL. UsageError for a URL that anybody on the way could change."""
    parts = urlsplit(place)
    if parts.scheme in ("http", "https"):
        if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
            raise UsageError(
                "A key set is fetched by https, because whoever changes it makes tokens.", url=place
            )
        return lambda: _fetched(place)
    if "://" in place:
        raise UsageError("A key set is a file, or a URL that starts with https://.", place=place)
    return lambda: _read(Path(place))


class _NoRedirect(HTTPRedirectHandler):
    """A redirect could lead from https to http, or into the network around us."""

    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        return None


class _Noted(AbstractHTTPHandler):
    """Notes the sockets that it opens, so that they can be cut off. A connection forgets its own once the head is there."""

    def __init__(self, opened: list[socket.socket]) -> None:
        super().__init__()
        self._opened = opened

    def do_open(self, http_class: Any, req: Request, **arguments: Any) -> HTTPResponse:
        def noted(*given: Any, **named: Any) -> HTTPConnection:
            connection: HTTPConnection = http_class(*given, **named)
            connect = connection.connect

            def connect_noted() -> None:
                connect()
                self._opened.append(connection.sock)

            connection.connect = connect_noted  # type: ignore[method-assign]  # of this one alone
            return connection

        return super().do_open(noted, req, **arguments)


class _Http(_Noted, HTTPHandler): ...


class _Https(_Noted, HTTPSHandler): ...


def _fetched(url: str) -> bytes:
    opened: list[socket.socket] = []
    opener = build_opener(_NoRedirect, _Http(opened), _Https(opened))
    request = Request(url, headers={"Accept": "application/json"})
    with _ended(opened), opener.open(request, timeout=JWKS_SECONDS_MAX) as response:
        return _bounded(response.read(JWKS_BYTES_MAX + 1))


@contextmanager
def _ended(opened: list[socket.socket]) -> Iterator[None]:
    """Cuts off what takes too long: a socket that is there, or as soon as it is. TimeoutError then, whatever came of it."""
    done, late = Event(), Event()

    def watch() -> None:
        if done.wait(JWKS_SECONDS_MAX):
            return
        late.set()
        while not done.wait(_CUT_AGAIN_SECONDS):
            for each in opened:
                with suppress(OSError):  # it is closed meanwhile
                    each.shutdown(socket.SHUT_RDWR)

    Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()
        if late.is_set():
            raise TimeoutError("it took too long")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return _bounded(file.read(JWKS_BYTES_MAX + 1))


def _bounded(text: bytes) -> bytes:
    if len(text) > JWKS_BYTES_MAX:
        raise URLError("it is too large")
    return text
