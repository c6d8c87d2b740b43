"""Problem documents (RFC 9457): how an error looks to whoever asked.

The status and the code come from the error's class. What an error of ours (500 and up) knows besides its fixed sentence
stays in the log, under the request's id: it may hold another's key, or a driver's words.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

import msgspec

from keyhouse.errors import CallerError, EngineError, KeyhouseError

PROBLEM = b"application/problem+json"
GUARDS = ((b"x-content-type-options", b"nosniff"), (b"x-frame-options", b"DENY"))
"""What every answer has, so that a browser takes it for nothing but what it is."""
_TEXT_CHARS_MAX = 200


class MethodError(CallerError):
    """There is something at this address, for other methods."""

    status = 405
    code = "METHOD_NOT_ALLOWED"


class AcceptError(CallerError):
    """The client takes nothing that this route can give."""

    status = 406
    code = "NOT_ACCEPTABLE"


class SlowError(CallerError):
    """The body did not come in time."""

    status = 408
    code = "REQUEST_TIMEOUT"


class MediaTypeError(CallerError):
    """The body is not sent as what this route reads."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"


class HeadError(CallerError):
    """The address and the headers of the request are more than is taken."""

    status = 431
    code = "HEADERS_TOO_LARGE"


class DrainingError(EngineError):
    """The service is on its way down, and takes nothing new."""

    code = "SHUTTING_DOWN"


class Problem(msgspec.Struct, rename="camel", omit_defaults=True):
    """An error as a document. `type` names the error's class, `code` its family, `fields` what varies."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str = ""
    fields: dict[str, Any] = {}


def problem_type(kind: type[KeyhouseError]) -> str:
    """`urn:keyhouse:error:key-field` for KeyFieldError: what the page of errors has an entry for."""
    name = kind.__name__.removesuffix("Error") or "Error"
    return "urn:keyhouse:error:" + re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def problem(error: Exception, request_id: str) -> Problem:
    if not isinstance(error, KeyhouseError):
        error = KeyhouseError("Something went wrong here. The log has it under this request's id.")
    return Problem(
        type=problem_type(type(error)),
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=error.sentence,
        code=error.code,
        request_id=request_id,
        fields={}
        if error.status >= 500
        else {name: _shown(value) for name, value in error.fields.items()},
    )


def problem_headers(error: Exception) -> list[tuple[bytes, bytes]]:
    """The headers that the status asks for."""
    headers = []
    match error:
        case MethodError(fields={"allow": allow}):
            headers.append((b"allow", str(allow).encode()))
        case KeyhouseError(status=401):
            headers.append((b"www-authenticate", b"Bearer"))
        case KeyhouseError(status=429 | 503) | KeyhouseError(fields={"retry_after": _}):
            headers.append((b"retry-after", str(error.fields.get("retry_after", 1)).encode()))
        case KeyhouseError(status=408 | 413):
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        case _:
            pass
    if isinstance(error, DrainingError):
        headers.append((b"connection", b"close"))
    return headers


def refusal(error: KeyhouseError, request_id: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The whole answer to what never became a request, as it goes over the wire; the connection ends with it."""
    document = problem(error, request_id)
    body = msgspec.json.encode(document)
    lines = [
        *headers,
        (b"content-type", PROBLEM),
        *GUARDS,
        (b"x-request-id", request_id.encode()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    status = b"HTTP/1.1 %d %s\r\n" % (document.status, document.title.encode())
    return status + b"".join(b"%s: %s\r\n" % line for line in lines) + b"\r\n" + body


def _shown(value: object) -> Any:
    """A field as JSON, and never more of it than a reader wants: it may be what the caller sent."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**53 else "a number too long to show"
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= _TEXT_CHARS_MAX else text[:_TEXT_CHARS_MAX] + "…"
    if isinstance(value, list | tuple | set | frozenset):
        return [_shown(each) for each in list(value)[:20]]
    return _shown(repr(value))
