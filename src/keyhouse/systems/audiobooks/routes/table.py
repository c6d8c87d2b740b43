"""Rows of the route table: every path is below `/api/v1`, and documented with its errors."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse.errors import KeyhouseError
from keyhouse.http import Route

__all__ = ["API", "add_root", "route"]

API: Final = "/api/v1"


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
) -> Route:
    """Return the route of `request`, such as `GET /books/{id}`."""
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
