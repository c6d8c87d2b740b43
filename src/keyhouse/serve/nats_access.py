"""The service's NATS: the embedded server is started, or the given one connected, when a part of
the service first needs it. It is stopped after everything that was started later.

An engine may need it (`nats:`), and so may endpoints and the bus. Engines are opened while the
services are built, so that is when the server is started for them.
"""

from contextlib import AsyncExitStack
from typing import Any

from keyhouse.engines.system_urls import with_server
from keyhouse.errors import UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import connect
from keyhouse.nats.server import NatsServer
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.embedded_nats import embedded_nats
from keyhouse.settings.settings import EMBEDDED, OFF, ServerSettings


class NatsAccess:
    """`credentials` are nats-py's options. `stack` stops what is started here."""

    def __init__(
        self,
        settings: ServerSettings,
        credentials: dict[str, Any],
        data: DataDir,
        stack: AsyncExitStack,
    ) -> None:
        self._settings = settings
        self._credentials = credentials
        self._data = data
        self._stack = stack
        self._embedded: NatsServer | None = None
        self._client: NatsClient | None = None

    @property
    def is_off(self) -> bool:
        return self._settings.nats == OFF

    @property
    def url(self) -> str | None:
        """The address, or None if nothing needed NATS so far."""
        if self._embedded is not None:
            return self._embedded.url
        return None if self._client is None else self._settings.nats

    async def start(self) -> str:
        """Start the embedded server unless it runs, and return the address of NATS."""
        if self._settings.nats != EMBEDDED:
            return self._settings.nats
        if self._embedded is None:
            self._embedded = await self._stack.enter_async_context(
                embedded_nats(self._data, self._settings.nats_port)
            )
        return self._embedded.url

    async def client(self) -> NatsClient:
        """Return the connection, which is made at the first call."""
        if self._client is None:
            url = await self.start()
            self._client = await self._stack.enter_async_context(connect(url, **self._credentials))
        return self._client

    async def push_client(self) -> NatsClient:
        """Open a further connection, for messages that must not delay replies."""
        url = await self.start()
        name = "keyhouse-pushes"
        return await self._stack.enter_async_context(connect(url, name=name, **self._credentials))

    async def engine_url(self, url: str) -> str:
        """Return the URL of an engine on the service's own server (`nats:`), started if need be.

        The embedded server syncs every commit, which the engine verifies when it is opened.
        """
        if self.is_off:
            raise UsageError(
                "The rows are on the service's NATS server, which is off: remove --nats off, or set"
                " another engine.",
                engine=url,
            )
        servers = await self.start()
        if self._embedded is not None:
            return with_server(url, servers, sync="always", monitor=self._embedded.monitor)
        file = self._settings.nats_credentials
        return with_server(url, servers, **({"credentials": file} if file else {}))
