"""Requests: headers, id and body within the limits, and content negotiation.

Handlers do not see them.
"""

import asyncio
import re
from typing import Any
from urllib.parse import quote

from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import LimitError, UsageError
from keyhouse.http.errors import AcceptError, MediaTypeError, SlowError
from keyhouse.limits import REQUEST_ID_CHARS_MAX

_VALID_ID = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._:/+=-]{0,%d}" % (REQUEST_ID_CHARS_MAX - 1))
_JSON = frozenset({"application/json", "application/json;charset=utf-8"})


class DisconnectedError(Exception):
    """The client disconnected before its request was complete: nothing is sent."""


class HttpRequest:
    __slots__ = ("_receive", "_scope", "headers", "id", "method", "pairs", "query", "raw_path")

    def __init__(self, scope: Any, receive: Any, new_id: str) -> None:
        self._scope = scope
        self._receive = receive
        self.method: str = scope["method"]
        self.pairs: HeaderPairs = scope["headers"]
        self.headers: dict[bytes, bytes] = dict(self.pairs)
        self.query: bytes = scope["query_string"]
        self.raw_path = _path(scope)
        self.id = new_id
        if b"x-request-id" in self.headers:
            self.id = _requested_id(self.headers[b"x-request-id"], new_id)

    @property
    def root(self) -> str:
        """The path that the app is mounted below, or ""."""
        root: str = self._scope.get("root_path", "")
        return root

    def header(self, name: bytes) -> str | None:
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    async def body(self, bytes_max: int, timeout_seconds: float) -> bytes:
        """Read the body. Raises LimitError as soon as it is known to be too large."""
        declared = self.headers.get(b"content-length")
        if declared is not None:
            if not declared.isdigit():
                raise UsageError("Content-Length must be a number.")
            if len(declared) > 18 or int(declared) > bytes_max:
                raise _too_large(bytes_max)
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        pieces, size = [], 0
        while True:
            message = await self._message(deadline)
            if message["type"] != "http.request":
                raise DisconnectedError
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > bytes_max:
                raise _too_large(bytes_max)
            pieces.append(piece)
            if not message.get("more_body", False):
                return piece if len(pieces) == 1 else b"".join(pieces)

    async def _message(self, deadline: float) -> Any:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._receive()
        except TimeoutError:
            raise SlowError("The body was not received in time.") from None


def check_json(content_type: str | None, encoding: str | None) -> None:
    """Raise MediaTypeError unless the body is declared as plain JSON.

    A form on another site cannot declare that.
    """
    if encoding is not None and encoding.strip().lower() != "identity":
        raise MediaTypeError("Send the body without a content encoding.", encoding=encoding)
    if content_type in _JSON:
        return
    kind, _, rest = (content_type or "").lower().partition(";")
    charset = rest.replace(" ", "").replace('"', "")
    kind = kind.strip()
    is_json = kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )
    if not is_json or charset not in ("", "charset=utf-8"):
        raise MediaTypeError("Send the body as application/json, in UTF-8.", sent=content_type)


def check_accepted(accept: str | None, media_type: str) -> None:
    """Raise AcceptError if the Accept header excludes the media type."""
    if accept is None or accept in ("*/*", media_type):
        return
    kind, _, _ = media_type.partition(";")
    family = kind.partition("/")[0] + "/*"
    weights: dict[str, float] = {}
    for part in accept.lower().split(","):
        name, *parameters = [each.strip() for each in part.split(";")]
        if name:
            weights[name] = _weight(parameters)
    best = next(
        (weights[name] for name in (kind, family, "*/*") if name in weights),
        0.0 if weights else 1.0,
    )
    if best <= 0:
        raise AcceptError("This route returns another media type.", gives=media_type)


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        if parameter.startswith("q="):
            try:
                return float(parameter[2:])
            except ValueError:
                return 0.0
    return 1.0


def _too_large(bytes_max: int) -> LimitError:
    return LimitError("The body is too large.", limit=bytes_max)


def _requested_id(sent: bytes, new_id: str) -> str:
    """Return the client's id if it is valid in a log."""
    return sent.decode() if _VALID_ID.fullmatch(sent) else new_id


def _path(scope: Any) -> bytes:
    """Return the path as it was sent, without the path that the app is mounted below."""
    raw: bytes | None = scope.get("raw_path")
    if raw is None:  # optional in ASGI
        raw = quote(scope["path"], safe="/:@!$&'()*+,;=~-._").encode()
    if b"?" in raw:  # some servers include the query
        raw = raw.partition(b"?")[0]
    if root := scope.get("root_path"):
        raw = _below(raw, root.encode())
    return raw or b"/"


def _below(raw: bytes, root: bytes) -> bytes:
    is_below = raw.startswith(root) and raw[len(root) : len(root) + 1] in (b"/", b"")
    return raw[len(root) :] if is_below else raw
