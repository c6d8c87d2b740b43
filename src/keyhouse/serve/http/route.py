"""One row of the route table: what is asked, what it takes, what it answers. The OpenAPI document is made from it."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec


class Route(msgspec.Struct, frozen=True, kw_only=True):
    method: str
    path: str
    handler: Callable[..., Awaitable[Any]]
