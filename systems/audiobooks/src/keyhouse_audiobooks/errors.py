"""Errors of the library's API: `{"error": text, "code": …, "status": …}` for every status.

A conflict of two devices has a further member, `data`: the state of the book that the other device
left.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import UNSET, Struct, UnsetType

from keyhouse.errors import CallerError, ConflictError, KeyhouseError
from keyhouse.http import ErrorFormat
from keyhouse_audiobooks.listening.messages import PlaybackState

__all__ = [
    "LIBRARY_ERRORS",
    "LibraryError",
    "NewerPlaceError",
    "NoConverterError",
    "PositionError",
]

_CODES: Final[Mapping[int, str]] = {
    401: "UNAUTHORIZED",
    403: "FORBIDDEN",
    404: "NOT_FOUND",
    409: "CONFLICT",
    412: "CONFLICT",
    422: "VALIDATION_ERROR",
    429: "TOO_MANY_REQUESTS",
    500: "INTERNAL_ERROR",
}


class NewerPlaceError(ConflictError):
    """Another device has moved on since the client read the position. `state` is its place."""

    def __init__(
        self, sentence: str, /, *, state: PlaybackState | None = None, **fields: object
    ) -> None:
        super().__init__(sentence, **fields)
        self.state = state


class PositionError(CallerError):
    """A position beyond the end of its file."""


class NoConverterError(KeyhouseError):
    """The service has no `ffmpeg`."""

    status = 501
    code = "SERVICE_UNAVAILABLE"


class LibraryError(Struct):
    error: str
    code: str
    status: int
    data: PlaybackState | UnsetType | None = UNSET


def _code(status: int) -> str:
    return _CODES.get(status, "BAD_REQUEST" if status < 500 else "SERVICE_UNAVAILABLE")


def _render(error: KeyhouseError, request_id: str) -> LibraryError:
    text = error.sentence if error.status >= 500 else str(error)
    data = error.state if isinstance(error, NewerPlaceError) else UNSET
    return LibraryError(text, _code(error.status), error.status, data)


LIBRARY_ERRORS: Final = ErrorFormat("flat", "application/json", LibraryError, _render)
