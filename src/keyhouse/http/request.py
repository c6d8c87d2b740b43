"""A request as the face reads it: its headers, its id, its body within the limits. Handlers never see it."""

import asyncio
import re
from typing import Any
from urllib.parse import quote

from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import LimitError, UsageError
from keyhouse.http.problem import SlowError
from keyhouse.limits import REQUEST_ID_CHARS_MAX

_SANE_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,%d}" % (REQUEST_ID_CHARS_MAX - 1))


class GoneError(Exception):
    """The client went away before it had sent its request: nobody is left to answer."""


class Request:
    __slots__ = ("_receive", "_scope", "headers", "id", "method", "pairs", "query", "raw_path")

    def __init__(self, scope: Any, receive: Any, new_id: str) -> None:
        self._scope = scope
        self._receive = receive
        self.method: str = scope["method"]
        self.pairs: HeaderPairs = scope["headers"]
        self.headers: dict[bytes, bytes] = dict(self.pairs)
        self.query: bytes = scope["query_string"]
        self.raw_path = _path(scope)
        self.id = (
            new_id
            if b"x-request-id" not in self.headers
            else _wished(self.headers[b"x-request-id"], new_id)
        )

    @property
    def root(self) -> str:
        """The path that the whole app is mounted below, "" when it is not."""
        root: str = self._scope.get("root_path", "")
        return root

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self, bytes_max: int, seconds_max: float) -> bytes:
        """All of it; LimitError as soon as it is known to be too large, before the rest is read."""
        declared = self.headers.get(b"content-length")
        if declared is not None:
            if not declared.isdigit():
                raise UsageError("Content-Length is a number.")
            if len(declared) > 18 or int(declared) > bytes_max:
                raise too_large(bytes_max)
        deadline = asyncio.get_running_loop().time() + seconds_max
        pieces, size = [], 0
        while True:
            message = await self._message(deadline)
            if message["type"] != "http.request":
                raise GoneError
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise too_large(bytes_max)
            pieces.append(piece)
            if not message.get("more_body", False):
                return piece if len(pieces) == 1 else b"".join(pieces)

    async def _message(self, deadline: float) -> Any:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._receive()
        except TimeoutError:
            raise SlowError("The body did not come in time.") from None


def too_large(bytes_max: int) -> LimitError:
    return LimitError("The body is too large.", limit=bytes_max)


def _wished(sent: bytes, new_id: str) -> str:
    """The id that a client sends, unless it could be anything but an id in a log."""
    return sent.decode() if _SANE_ID.fullmatch(sent) else new_id


def _path(scope: Any) -> bytes:
    """The path as it was sent, below the place where the app is mounted."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:  # a server need not keep it
        raw = quote(scope["path"], safe="/:@!$&'()*+,;=~-._").encode()
    if b"?" in raw:  # some leave the query behind it
        raw = raw.partition(b"?")[0]
    if root := scope.get("root_path"):
        raw = _below(raw, root.encode())
    return raw or b"/"


def _below(raw: bytes, root: bytes) -> bytes:
    is_below = raw.startswith(root) and raw[len(root) : len(root) + 1] in (b"/", b"")
    return raw[len(root) :] if is_below else raw
