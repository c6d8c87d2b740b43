"""Errors of the HTTP layer, and the formats of error bodies.

Status and code come from the class of the error. Fields of errors on our side (500 and above) are
not sent, only logged with the request's id: they may contain another tenant's key or a driver's
message.
"""

from collections.abc import Callable, Hashable
from http import HTTPStatus
from time import monotonic
from typing import Any, Final

import msgspec

from keyhouse.errors import (
    AccessError,
    CallerError,
    EngineError,
    KeyhouseError,
    TokenError,
    error_urn,
)
from keyhouse.http.response import JSON, EncodedResponse, Headers, encode


class MethodError(CallerError):
    """The path exists, for other methods."""

    status = 405
    code = "METHOD_NOT_ALLOWED"


class AcceptError(CallerError):
    """The client accepts no media type that the route returns."""

    status = 406
    code = "NOT_ACCEPTABLE"


class SlowError(CallerError):
    """The request was not received in time."""

    status = 408
    code = "REQUEST_TIMEOUT"


class MediaTypeError(CallerError):
    """The body has a media type that the route does not read."""

    status = 415
    code = "UNSUPPORTED_MEDIA_TYPE"


class RangeError(CallerError):
    """The requested range begins after the end of the file."""

    status = 416
    code = "RANGE_NOT_SATISFIABLE"


class HeadError(CallerError):
    """The request line and headers are too large."""

    status = 431
    code = "HEADERS_TOO_LARGE"


class DrainingError(EngineError):
    """The service is shutting down."""

    code = "SHUTTING_DOWN"


class Problem(msgspec.Struct, rename="camel", omit_defaults=True):
    """A problem document (RFC 9457). `type` names the class of the error, `code` its family."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str = ""
    fields: dict[str, Any] = {}


class ErrorDetails(msgspec.Struct):
    code: str
    message: str
    details: dict[str, Any]


class NestedError(msgspec.Struct):
    """`{"error": {"code": …, "message": …, "details": …}}`. `details` are the fields."""

    error: ErrorDetails


class ErrorFormat(msgspec.Struct, frozen=True):
    """The body of a service's errors, for every status, including those of the HTTP layer."""

    name: str
    media_type: str
    body: type[msgspec.Struct]
    """The type of the body, for the OpenAPI document."""
    render: Callable[[KeyhouseError, str], msgspec.Struct]
    """Return the body for an error and the id of its request."""

    def response(
        self, error: Exception, request_id: str, realm: str = "keyhouse"
    ) -> EncodedResponse:
        """Return the response to a request that raised `error`. `realm` is its service's name."""
        error = error.public() if isinstance(error, KeyhouseError) else internal_error()
        headers = [(b"content-type", self.media_type.encode()), *error_headers(error, realm)]
        return EncodedResponse(error.status, headers, encode(self.render(error, request_id)))


def internal_error() -> KeyhouseError:
    """Return the error that is shown for an unhandled exception."""
    return KeyhouseError("Internal error. The log has it under this request's id.")


def shown_error(error: Exception) -> KeyhouseError:
    """Return the error that a page may show: without the fields of an error on our side."""
    if not isinstance(error, KeyhouseError):
        return internal_error()
    if not _hides_fields(error):
        return error.public()
    shown = error.copy()
    shown.fields = {}
    return shown


def _problem(error: KeyhouseError, request_id: str) -> Problem:
    return Problem(
        type=error_urn(error),
        title=HTTPStatus(error.status).phrase,
        status=error.status,
        detail=error.sentence,
        code=error.code,
        request_id=request_id,
        fields=_fields(error),
    )


def _nested(error: KeyhouseError, request_id: str) -> NestedError:
    return NestedError(ErrorDetails(error.code, error.sentence, _fields(error)))


PROBLEM = ErrorFormat("problem", "application/problem+json", Problem, _problem)
NESTED = ErrorFormat("nested", JSON, NestedError, _nested)


def error_headers(error: KeyhouseError, realm: str) -> Headers:
    """Return the headers that the status requires."""
    headers: Headers = []
    match error:
        case MethodError(fields={"allow": allow}):
            headers.append((b"allow", str(allow).encode()))
        case KeyhouseError(status=401):
            headers.append((b"www-authenticate", _challenge(error, realm)))
        case KeyhouseError(status=429 | 503) | KeyhouseError(fields={"retry_after": _}):
            headers.append((b"retry-after", str(error.fields.get("retry_after", 1)).encode()))
        case RangeError(fields={"size": size}):
            headers.append((b"content-range", f"bytes */{size}".encode()))
        case KeyhouseError(status=408 | 413):
            headers.append((b"connection", b"close"))  # the rest of the body is not read
        case _:
            pass
    if isinstance(error, DrainingError):
        headers.append((b"connection", b"close"))
    return headers


def _challenge(error: KeyhouseError, realm: str) -> bytes:
    """RFC 6750, 3: an error only if credentials were sent."""
    was_sent = isinstance(error, TokenError) and not error.missing
    reason = ', error="invalid_token"' if was_sent else ""
    return f'Bearer realm="{realm}"{reason}'.encode()


def _hides_fields(error: KeyhouseError) -> bool:
    return error.status >= 500 and not isinstance(error, AccessError)


def _fields(error: KeyhouseError) -> dict[str, Any]:
    if _hides_fields(error):
        return {}
    return error.json_fields()


# Log lines

CAUSES_MAX: Final = 256
"""Causes of log lines that are remembered; beyond it, the oldest one is forgotten."""

_LINE_SECONDS: Final = 1.0


class RepeatedLines:
    """Chooses the lines to log: one a second of each cause. While an engine is away, every request
    fails alike."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._last: dict[Hashable, tuple[float, int]] = {}

    def fields(self, cause: Hashable) -> dict[str, int] | None:
        """Return fields for a line of this cause: `repeated`, if lines were left out. None: leave
        this one out."""
        now = self._clock()
        last, left_out = self._last.get(cause, (float("-inf"), 0))
        if now - last < _LINE_SECONDS:
            self._last[cause] = last, left_out + 1
            return None
        self._last[cause] = now, 0
        if len(self._last) > CAUSES_MAX:
            del self._last[next(iter(self._last))]
        return {"repeated": left_out} if left_out else {}
