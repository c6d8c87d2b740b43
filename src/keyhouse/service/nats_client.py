"""The NATS side of typed clients of services, and of commands that talk to one."""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

import msgspec
from nats.aio.client import Client

from keyhouse.errors import DocumentError, UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.remote_store.nats_requests import NatsRequests, NatsTenant, connect_tenant

__all__ = ["NatsServiceClient", "NatsTenant", "connect_to_service"]

_PAGE_ITEMS: Final = 1_000

_encode = msgspec.json.Encoder().encode


class NatsServiceClient:
    """A client of one tenant of a service, on a connection that its caller has opened.

    Nothing but a watch is retried: without a reply, one of the `reads` raises UnavailableError, and
    any other operation UnknownOutcomeError. `timeout` is in seconds, per reply.
    """

    def __init__(
        self, connection: Client, tenant: NatsTenant, *, reads: Collection[str], timeout: float
    ) -> None:
        async def connected() -> Client:
            return connection

        self.requests = NatsRequests(connected, tenant, timeout)
        self._reads = reads

    async def request(self, operation: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return a successful reply; raise the service's error for any other."""
        lost = UnavailableError if operation in self._reads else UnknownOutcomeError
        return await self.requests.send(operation, _encoded(body), lost)

    async def items_of(
        self, operation: str, member: str, body: Mapping[str, Any]
    ) -> AsyncIterator[Any]:
        """Iterate over the items of all pages of an operation that takes and returns a cursor."""
        cursor: str | None = None
        while True:
            page = await self.request(operation, {**body, "limit": _PAGE_ITEMS, "cursor": cursor})
            for item in page[member]:
                yield item
            if (cursor := page.get("cursor")) is None:
                return


async def connect_to_service(url: str, tenant: NatsTenant) -> NatsClient:
    """Connect a command to a tenant of a service. A lost connection is not restored."""
    if not url.startswith(("nats://", "tls://")):
        raise UsageError("This service is reached over NATS: --store nats://host:4222.")
    return await connect_tenant(url, tenant, raise_denied=True, allow_reconnect=False)


def _encoded(body: Mapping[str, Any]) -> bytes:
    """Encode as JSON. NaN and infinity, which msgspec would write as `null`, are rejected."""
    try:
        data = _encode(body)
    except UnicodeEncodeError:
        raise DocumentError("Text holds a lone surrogate, which UTF-8 cannot encode.") from None
    if b"null" in data:
        try:
            json.dumps(msgspec.to_builtins(body, str_keys=True), allow_nan=False)
        except ValueError:
            raise DocumentError("A number in the value is not finite.") from None
    return data
