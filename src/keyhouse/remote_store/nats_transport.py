"""Requests of a remote store over NATS: `keyhouse.<schema>.<space>.<operation>`.

User and password are in the URL. Needs `nats-py`, of the extra `nats`.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Final

import msgspec

from keyhouse.advice.install import install_line
from keyhouse.errors import UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.operations.table import requested_verb
from keyhouse.operations.verb import Verb
from keyhouse.schema import Operation

try:
    from keyhouse.nats.client import NatsClient
    from keyhouse.remote_store.nats_requests import NatsRequests, NatsTenant, connect_tenant
except ModuleNotFoundError as error:
    raise ImportError(
        f"A remote store over NATS needs nats-py: {install_line('jetstream')}"
    ) from error

__all__ = ["NatsTransport"]

_REQUEST_SECONDS: Final = 30.0

_encode = msgspec.json.Encoder().encode


class NatsTransport:
    """One connection to NATS, opened by the first request. `raise_denied` is for commands: see
    `connect_client`."""

    def __init__(
        self, url: str, schema: str, space: str | None, *, raise_denied: bool = False
    ) -> None:
        if space is None:
            raise UsageError("Over NATS, name the space: RemoteStore(SCHEMA, url, space=NAME).")
        self._url = url
        self._tenant = NatsTenant(
            space, f"keyhouse.{schema}.{space}", f"keyhouse.changes.{schema}.{space}"
        )
        self._requests = NatsRequests(self._connected, self._tenant, _REQUEST_SECONDS)
        self._raise_denied = raise_denied
        self._client: NatsClient | None = None
        self._connecting = asyncio.Lock()

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def call(self, operation: str, body: dict[str, Any]) -> Any:
        """Return the answer to a request; raise the store's error for any other."""
        verb = requested_verb(operation, body)
        lost = UnavailableError if verb.access == "read" else UnknownOutcomeError
        return await self._requests.send(operation, _encode(_message(verb, body)), lost)

    async def call_own(self, operation: Operation[Any, Any], request: Any) -> Any:
        """Return the reply of an operation of one's own."""
        lost = UnavailableError if operation.access == "read" else UnknownOutcomeError
        data = b"" if request is None else _encode(request)
        return await self._requests.send(operation.name, data, lost)

    async def changes(
        self, body: dict[str, Any], since: int
    ) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
        """Iterate over the events of a watch, each once, and the revisions up to which they are
        complete (`caught_up`)."""
        async with aclosing(self._requests.watch(body, since)) as changes:
            async for change in changes:
                if isinstance(change, int):
                    yield "caught_up", {"revision": change}
                else:
                    yield change.pop("event"), change

    async def _connected(self) -> NatsClient:
        async with self._connecting:
            if self._client is None:
                self._client = await connect_tenant(
                    self._url, self._tenant, raise_denied=self._raise_denied
                )
            return self._client


def _message(verb: Verb, body: dict[str, Any]) -> dict[str, Any]:
    """Return the members of a request. Null has a meaning only as a value and a revision."""
    message = {
        name: value
        for name, value in body.items()
        if (value is not None or name in ("value", "expect")) and name != "op"
    }
    if verb.key == "filters":
        message["fields"] = {name: str(each) for name, each in message.pop("filters").items()}
    return message
