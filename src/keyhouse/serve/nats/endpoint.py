"""One subject that is answered, and by what."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    subject: str
    handler: Callable[..., Awaitable[Any]]
