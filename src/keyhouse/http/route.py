"""One row of the route table: what is asked, what it takes, what it answers. The OpenAPI document is made from it.

A handler is an async function of plain values, found by their names:

    {field} of the path   an argument of that name, of its annotated type
    query                 a Struct: a member for each parameter
    headers               a Struct: a member for each header, renamed to it
    body                  any type that msgspec reads from JSON; `bytes` for the body as it came
    caller                the Caller, on a route with a scope
    conditions            If-Match and If-None-Match
    root                  the path that the whole app is mounted below, "" when it is not

It returns a plain value, or a Reply. It raises KeyhouseErrors, and knows nothing of HTTP beyond that.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from keyhouse.errors import DeclarationError, KeyhouseError
from keyhouse.http.response import ResponseSpec

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""HEAD follows from GET, and OPTIONS from what there is."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """`path` is below the system's prefix. A segment is text, a `{field}`, or a field with text around it.

    `scope` names what a token must allow; None: no token is asked for. `replies` maps a status to a type or a `ResponseSpec`;
    without it the handler's own annotation is what status 200 returns, or 204 when that is None. `problems` are the errors
    that only this route's handler raises; those of the face itself are known. `example` is a body, for the document.
    """

    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
    scope: str | None = None
    replies: Mapping[int, Any] = {}
    problems: Sequence[type[KeyhouseError]] = ()
    example: Any = msgspec.UNSET
    body_bytes_max: int | None = None
    tag: str = ""
    listed: bool = True

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise DeclarationError(
                "A route's method is one of these.", method=self.method, known=METHODS
            )
        if not self.path.startswith("/") or "//" in self.path:
            raise DeclarationError(
                "A route's path starts with a slash, and has none beside another.", path=self.path
            )

    def returns(self, status: int) -> ResponseSpec:
        found = self.replies[status]
        return found if isinstance(found, ResponseSpec) else ResponseSpec(type=found)
