"""Rows of the route table: every path is below `/api/v1`, and documented with its errors."""

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse.errors import KeyhouseError
from keyhouse.http import Conditions, Response, Route
from keyhouse.systems.audiobooks.library import Data, data

__all__ = ["API", "add_root", "revision_check", "route", "tagged"]

API: Final = "/api/v1"
_SHOWN_TAG: Final = re.compile(r'"(\d+)-[0-9a-f]+"')
_encode = msgspec.json.Encoder().encode


def route(
    request: str,
    handler: Callable[..., Awaitable[Any]],
    scope: str | None,
    *,
    status: int = 200,
    problems: Sequence[type[KeyhouseError]] = (),
    example: Any = msgspec.UNSET,
    replies: Mapping[int, Any] | None = None,
    body_bytes_max: int | None = None,
    body_type: Any = None,
) -> Route:
    """Return the route of `request`, such as `GET /books/{id}`. `body_type` is the type of a body
    that may be absent, which the handler decodes."""
    method, _, path = request.partition(" ")
    others = {} if status == 200 else {status: type(None) if status == 204 else Any}
    return Route(
        method=method,
        path=API + path,
        handler=handler,
        scope=scope,
        problems=problems,
        example=example,
        replies=replies or others,
        body_bytes_max=body_bytes_max,
        body_type=body_type,
        tag=path.split("/")[1],
    )


def add_root(root: str, shown: Iterable[dict[str, Any]]) -> None:
    """Put the path that a proxy removes in front of the URLs of books and segments."""
    if not root:
        return
    for each in shown:
        for name in ("cover_url", "audio_url"):
            if each.get(name):
                each[name] = root + each[name]


def tagged(shown: dict[str, Any], revision: int, status: int = 200) -> Response[Data[Any]]:
    """Return a record with its ETag: the revision, and a hash of all that is shown, since names and
    counts of other records are part of it. A client that has both the same gets 304."""
    digest = hashlib.blake2b(_encode(shown), digest_size=6).hexdigest()
    return Response(data(shown), status, etag=f'"{revision}-{digest}"')


def revision_check(conditions: Conditions) -> Callable[[int | None], None]:
    """Return the check of a write: only the revision of an ETag counts, or a revision alone."""

    def revisions(tags: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return None if tags is None else tuple(_SHOWN_TAG.sub(r'"\1"', tag) for tag in tags)

    return Conditions(revisions(conditions.if_match), revisions(conditions.if_none_match)).check
