"""Responses: the value a handler returns, the declaration of one, and the bytes that are sent.

Cookies carry credentials: they are never readable by scripts, and never sent along by other sites.
"""

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Any, ClassVar, Generic, Literal, TypeVar

import msgspec

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http.client_address import ClientAddress

T = TypeVar("T")
P = TypeVar("P", bound=msgspec.Struct)

JSON = "application/json"
ANYTHING = "*/*"
"""The media type of bytes whose route declares none."""

BYTES_TYPES = (bytes, bytearray)
"""Bodies that are sent as they are."""

NO_BODY_STATUSES = frozenset({204, 304})
"""Responses with these have no body and no length."""

_PIECE_BYTES = 64 * 1_024
_STEP_BYTES = 256 * 1_024
_ITEM_BYTES = 1_024
"""An item of a page takes as long as so many bytes, besides its own."""

_COMMA = ord(",")

Headers = list[tuple[bytes, bytes]]

SECURITY_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"))
"""On every response: browsers neither guess its type nor show it in a frame."""

encode = msgspec.json.Encoder().encode


class Response(msgspec.Struct, Generic[T], frozen=True):
    """A value with status and headers, for a handler whose plain value is not enough.

    The value is encoded as JSON; `bytes`, and an iterator of them, are sent as they are, with
    `media_type`. `etag` is a revision, or a whole entity tag with its quotes.
    """

    body: T
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    etag: str | int | None = None
    media_type: str = JSON


class ResponseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a route's `replies`, where a type alone is not enough.

    `headers` maps the names of headers to their descriptions.
    """

    type: Any
    about: str = ""
    example: Any = msgspec.UNSET
    headers: dict[str, str] = {}
    media_type: str = JSON


class Responder(ABC):
    """A value returned by a handler that makes the response itself, from the request's headers.

    `replies` describes its responses, for the OpenAPI document.
    """

    replies: ClassVar[Mapping[int, ResponseSpec]] = {}

    @abstractmethod
    async def respond(self, method: str, headers: Mapping[bytes, bytes]) -> "EncodedResponse": ...


Stream = AsyncIterator[bytes]
"""A body that is sent in pieces as they are produced. The ResponseSpec has its media type."""


class FixedHeaders:
    """Headers that many responses share, with the security headers: as pairs, and as sent."""

    __slots__ = ("lines", "pairs")

    def __init__(self, *pairs: tuple[bytes, bytes]) -> None:
        self.pairs = (*pairs, *SECURITY_HEADERS)
        self.lines = b"".join([b"%b: %b\r\n" % pair for pair in self.pairs])


_SECURITY = FixedHeaders()


class EncodedResponse(msgspec.Struct):
    """The status, headers and body that the server sends. Its list of headers is not shared."""

    status: int
    headers: Headers
    body: Any = b""
    """Bytes, a bytearray (a long body), an iterator of bytes, or an EventBody."""
    fixed: FixedHeaders = _SECURITY

    def all_headers(self, request_id: str) -> Headers:
        """Return every header except those of the body's length."""
        return [*self.headers, *self.fixed.pairs, (b"x-request-id", request_id.encode())]


class ResponseSender:
    """The `send` that Keyhouse's own server gives to an ASGI application: it also takes a whole
    response. Middleware wraps it in a function, so that no response is sent past it.

    No ABC: each request asks for an instance, and that of an ABC takes as long as a small function.
    """

    __slots__ = ()

    async def __call__(self, message: Any) -> None:
        raise NotImplementedError

    async def send_response(self, request_id: str, response: EncodedResponse) -> None:
        """Send a response whose body is bytes; for HEAD without them."""
        raise NotImplementedError


class AbortedError(Exception):
    """A response cannot be completed, and this is logged: the server closes the connection."""


async def page_response(page: P, member: str) -> Response[P]:
    """Return a page whose list `member` consists of encoded items (`msgspec.Raw`).

    A long one is put together in steps, between which other requests are handled: a megabyte takes
    half a millisecond, and a list of all records may have a hundred of them.
    """
    items: list[msgspec.Raw] = getattr(page, member)
    size = sum([memoryview(item).nbytes for item in items])
    if size <= _STEP_BYTES:
        return Response(page)
    # A list of one NUL, which no JSON contains, shows where the items are.
    empty = msgspec.structs.replace(page, **{member: [msgspec.Raw(b"\0")]})
    head, _, tail = encode(empty).partition(b"\0")
    body = bytearray(len(head) + size + len(items) - 1 + len(tail))
    at, step = len(head), 0
    body[:at] = head
    for number, item in enumerate(items):
        if number:
            body[at] = _COMMA
            at += 1
        data = memoryview(item)
        body[at : at + data.nbytes] = data
        at += data.nbytes
        step += data.nbytes + _ITEM_BYTES
        if step > _STEP_BYTES:
            step = 0
            await asyncio.sleep(0)
    body[at:] = tail
    return Response(body)  # type: ignore[arg-type]  # the page, encoded


async def json_array(items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    """Encode items as a JSON array, in pieces: the body of a Stream."""
    piece = bytearray(b"[")
    is_first = True
    async for each in items:
        piece += b"\n" if is_first else b",\n"
        piece += encode(each)
        is_first = False
        if len(piece) >= _PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece) + b"\n]\n"


# Cookies

_COOKIE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_COOKIE_VALUE = re.compile(r"[A-Za-z0-9_.~+/=-]{0,4096}")
_COOKIE_PATH = re.compile(r"/[A-Za-z0-9_./~-]*")


def retry_after(error: KeyhouseError) -> tuple[tuple[str, str], ...]:
    """Return the header by which a page says when to try again; none if the error does not."""
    seconds = error.fields.get("retry_after")
    return () if seconds is None else (("Retry-After", str(seconds)),)


def set_cookie(
    name: str,
    value: str,
    client: ClientAddress,
    *,
    path: str = "/",
    max_age_seconds: int | None = None,
    same_site: Literal["Lax", "Strict"] = "Lax",
) -> tuple[str, str]:
    """Return the header that sets a cookie: HttpOnly, and Secure if the client uses https.

    Without `max_age_seconds` it lasts until the browser is closed. Raises UsageError if a part is
    not valid in a cookie.
    """
    for text, pattern in ((name, _COOKIE_NAME), (value, _COOKIE_VALUE), (path, _COOKIE_PATH)):
        if not pattern.fullmatch(text):
            raise UsageError("This is not valid in a cookie.", cookie=name)
    parts = [f"{name}={value}", f"Path={path}", "HttpOnly", f"SameSite={same_site}"]
    if client.is_https:
        parts.append("Secure")
    if max_age_seconds is not None:
        parts.append(f"Max-Age={max_age_seconds}")
    return "Set-Cookie", "; ".join(parts)


def delete_cookie(name: str, client: ClientAddress, *, path: str = "/") -> tuple[str, str]:
    """Return the header that deletes a cookie, at sign-out."""
    return set_cookie(name, "", client, path=path, max_age_seconds=0)
