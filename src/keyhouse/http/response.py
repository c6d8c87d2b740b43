"""What a handler may answer with, when a plain value does not say all: a status, headers, a tag, other bytes than JSON."""

from collections.abc import AsyncIterator
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")

JSON = "application/json"
ANYTHING = "*/*"
"""The media type of bytes of which the route says nothing else."""


class Response(msgspec.Struct, Generic[T], frozen=True):
    """A value with its status and headers.

    The value is written as JSON; `bytes`, and an iterator of them, are sent as they are, with `media_type`. `etag` is the
    whole tag with its quotes: see `conditions.etag`.
    """

    body: T
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    etag: str | None = None
    media_type: str = JSON


class ResponseSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a route's `replies`, where a type alone does not say all. `headers` are names with what they hold."""

    type: Any
    about: str = ""
    example: Any = msgspec.UNSET
    headers: dict[str, str] = {}
    media_type: str = JSON


Stream = AsyncIterator[bytes]
"""A body that is sent piece by piece, as it is made. Its media type is the reply's."""
