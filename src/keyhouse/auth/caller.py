"""Callers and authenticators: who sends a request, and what they may do.

The HTTP layer knows no more of authentication than this, so a service may use tokens, sessions or
one-time codes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from keyhouse.errors import ScopeError

__all__ = ["Authenticator", "Caller", "HeaderPairs"]

HeaderPairs = Sequence[tuple[bytes, bytes]]
"""The headers of a request as they came: names in lower case, repeated ones repeated."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated caller.

    `tenant` selects the data, and `subject` is the user within the tenant (empty: the tenant
    itself). `tenants` are further ones that the credentials reach, for routes that name a tenant.
    `roles` are what the subject is in the tenant; `scopes` are what its credentials allow.
    `from_cookie` is true for credentials that a browser sends by itself: a page of another site can
    cause a request that carries them. `turn` names those who take turns with others: the tenant by
    default; the user, where all share one tenant and must not hold up each other.
    """

    tenant: str
    subject: str = ""
    roles: frozenset[str] = frozenset()
    scopes: frozenset[str] = frozenset()
    tenants: frozenset[str] = frozenset()
    from_cookie: bool = False
    turn: str = ""

    def require(self, scope: str) -> None:
        """Raise ScopeError unless this caller has the scope."""
        if scope not in self.scopes:
            raise ScopeError("The token does not have the required scope.", needed=scope)

    def require_tenant(self, tenant: str) -> None:
        """Raise ScopeError unless the credentials reach this tenant, whether or not it exists."""
        if tenant != self.tenant and tenant not in self.tenants:
            raise ScopeError("The token does not reach this tenant.")


class Authenticator(Protocol):
    """Identifies callers by the headers of a request."""

    @property
    def schemes(self) -> Mapping[str, Mapping[str, Any]]:
        """The OpenAPI security schemes by name. Any one of them is enough."""
        ...

    @property
    def anonymous(self) -> Caller | None:
        """The caller of requests without credentials, on routes whose scope it has; None: there is
        none. It has no tenant."""
        return None

    def cached_caller(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        """Return the caller if it is known without waiting, else None; then call `authenticate`.

        Only for a request without repeated headers. It must agree with `authenticate`.
        """
        return None

    async def authenticate(self, headers: HeaderPairs) -> Caller:
        """Return the caller. Raises TokenError if credentials are missing or not accepted."""
        ...

    async def recheck(self, headers: HeaderPairs) -> Caller:
        """Return the caller of a response that is still open, as an event stream is.

        Like `authenticate`, but it does not count as use: a session is not extended by it.
        """
        return await self.authenticate(headers)
