"""Who asks: the tenant, and what they may do. Made by an Authenticator from the headers of a request.

A face knows this much of authentication and no more, so a system may have tokens, sessions or codes of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from keyhouse.errors import ScopeError

HeaderPairs = Sequence[tuple[bytes, bytes]]
"""The headers of a request as they came: names in lower case, repeated ones repeated."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whose credentials were accepted.

    `ambient` credentials are those that a browser adds by itself, such as a cookie: a page of another site can cause a
    request that carries them.
    """

    tenant: str
    scopes: frozenset[str] = frozenset()
    ambient: bool = False

    def must(self, scope: str) -> None:
        """Raise ScopeError unless this caller has the scope."""
        if scope not in self.scopes:
            raise ScopeError("The token does not have the scope that this needs.", needed=scope)


class Authenticator(Protocol):
    """Who tells who asks. It may have a method `cached_caller` besides: see `JwtAuth`."""

    @property
    def schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """The security schemes, by name, as OpenAPI writes them. Any one of them is enough."""
        ...

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        """The caller; TokenError when the credentials are missing or not accepted."""
        ...
