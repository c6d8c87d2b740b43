"""The service's NATS: the embedded server is started, or the given one connected, when a part of
the service first needs it. It is stopped after everything that was started later.

An engine may need it (`nats:`), and so may endpoints and the bus. Engines are opened while the
services are built, so that is when the server is started for them.
"""

import secrets
from contextlib import AsyncExitStack
from typing import Any

import structlog

from keyhouse.engines.system_urls import with_server
from keyhouse.errors import UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import connect
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.embedded_nats import EmbeddedNats, embedded_nats, enable_jetstream
from keyhouse.settings.settings import EMBEDDED, OFF, ServerSettings

_log = structlog.get_logger("keyhouse.serve")


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
        self._embedded: EmbeddedNats | None = None
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

    async def start(self, *, jetstream: bool = False) -> str:
        """Start the embedded server unless it runs, and return the address of NATS."""
        settings = self._settings
        if settings.nats != EMBEDDED:
            return settings.nats
        if self._embedded is None:
            if not settings.nats_auth:
                _log.warning(
                    "every local user can connect to the embedded nats-server: set nats_auth = true"
                )
            self._embedded = await self._stack.enter_async_context(
                embedded_nats(
                    self._data,
                    settings.nats_port,
                    jetstream=jetstream,
                    monitor_port=settings.nats_monitor_port,
                    password=secrets.token_hex(16) if settings.nats_auth else None,
                )
            )
        elif jetstream:
            await enable_jetstream(self._embedded)
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

        The embedded server has JetStream from then on, and syncs every commit, which the engine
        verifies when it is opened if there is a monitoring port.
        """
        if self.is_off:
            raise UsageError(
                "The rows are on the service's NATS server, which is off: remove --nats off, or set"
                " another engine.",
                engine=url,
            )
        servers = await self.start(jetstream=True)
        if self._embedded is not None:
            monitor = self._embedded.monitor
            shown = {} if monitor is None else {"monitor": monitor}
            return with_server(url, servers, sync="always", **shown)
        file = self._settings.nats_credentials
        return with_server(url, servers, **({"credentials": file} if file else {}))
