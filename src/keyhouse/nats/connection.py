"""The service's connection to NATS: it reconnects for as long as it takes, and logs each change."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from keyhouse.errors import UnavailableError
from keyhouse.nats.client import PENDING_BYTES_MAX, NatsClient
from keyhouse.nats.errors import (
    REJECTED,
    connection_problem,
    is_loss,
    is_permanent,
    is_refusal,
    reported_cause,
)

__all__ = ["connect"]

CONNECT_SECONDS: Final = 5
RECONNECT_SECONDS: Final = 0.5
PING_SECONDS: Final = 10
"""A server that does not answer three pings is disconnected."""

REPEAT_LOG_SECONDS: Final = 60
"""While disconnected, the same reason is logged this seldom: there are two attempts a second."""

_log = structlog.get_logger("keyhouse.nats")


@asynccontextmanager
async def connect(
    url: str, *, name: str = "keyhouse", is_further: bool = False, **options: Any
) -> AsyncIterator[NatsClient]:
    """Connect to the servers of `url`, separated by commas; UnavailableError if none answers.

    `options` are those of nats-py, such as `user_credentials` or `tls`. While there is no
    connection, messages beyond PENDING_BYTES_MAX are dropped. A connection that `is_further`, one
    of several to the same servers, logs its name, and that it is connected or lost at debug level
    only: a server that is lost is one warning.
    """
    client = NatsClient(log=_log)
    log = ConnectionLog(client, name if is_further else None)
    try:
        async with asyncio.timeout(CONNECT_SECONDS) as log.timeout:
            await client.connect(
                [each.strip() for each in url.split(",")],
                name=name,
                connect_timeout=CONNECT_SECONDS,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_SECONDS,
                ping_interval=PING_SECONDS,
                pending_size=PENDING_BYTES_MAX,
                error_cb=log.error,
                disconnected_cb=log.disconnected,
                reconnected_cb=log.reconnected,
                **options,
            )
    except (NatsError, OSError) as error:  # TimeoutError is an OSError
        await _close(client)
        sentence = (
            REJECTED
            if log.last_error is not None and is_refusal(log.last_error)
            else connection_problem(log.last_error or error)
            or "No NATS server answers: start it, or check the host and port."
        )
        raise UnavailableError(
            sentence, servers=_without_user(url), reason=str(log.last_error or error)
        ) from error
    except BaseException:
        await _close(client)
        raise
    log.connect()
    try:
        yield client
    finally:
        log.closing = True
        await _close(client)


def _without_user(url: str) -> str:
    return ",".join(each.rpartition("@")[2] for each in url.split(","))


def _server(client: Client) -> str | None:
    return None if client.connected_url is None else _without_user(client.connected_url.netloc)


async def _close(client: Client) -> None:
    if not client.is_closed:
        await client.close()


class ConnectionLog:
    """Logs nats-py's callbacks. Errors of the first connect are raised, not logged."""

    def __init__(self, client: NatsClient, name: str | None = None) -> None:
        self._client = client
        self._log = _log if name is None else _log.bind(connection=name)
        self._log_connected = self._log.info if name is None else self._log.debug
        self._log_lost = self._log.warning if name is None else self._log.debug
        self.connected = False
        self.closing = False
        self.last_error: Exception | None = None
        self.timeout: asyncio.Timeout | None = None
        self._errors = 0
        self._logged_at = -math.inf
        self._logged_reason = ("", -math.inf)

    def connect(self) -> None:
        self.connected = True
        self._log_connected("nats connected", server=_server(self._client))

    async def error(self, error: Exception) -> None:
        self.last_error = error if self.connected else reported_cause(self.last_error, error)
        if not self.connected and self.timeout is not None and is_permanent(error):
            with suppress(RuntimeError):  # it has expired; otherwise nats-py would keep retrying
                self.timeout.reschedule(asyncio.get_running_loop().time() + RECONNECT_SECONDS / 2)
        reason = str(error) or type(error).__name__
        self._errors += 1
        if not self.connected or (self._client.is_connected and is_loss(error)):
            return  # raised, or logged as `nats disconnected`
        if self._client.is_connected and self._is_due():
            self._log.warning("nats error", reason=reason, errors=self._errors)
        elif not self._client.is_connected and self._is_new(reason):
            fix = {"fix": REJECTED} if is_refusal(error) else {}
            self._log_lost("nats error", reason=reason, errors=self._errors, **fix)

    def _is_due(self) -> bool:
        """Once a second: a caller may name a reply subject that the service may not publish to, and
        the server then reports every reply."""
        due = (now := time.monotonic()) - self._logged_at >= 1
        self._logged_at = now if due else self._logged_at
        return due

    def _is_new(self, reason: str) -> bool:
        logged, at = self._logged_reason
        now = time.monotonic()
        if reason == logged and now < at + REPEAT_LOG_SECONDS:
            return False
        self._logged_reason = (reason, now)
        return True

    async def disconnected(self) -> None:
        if self.connected and not self.closing:
            reason = str(self.last_error) if self.last_error else "the connection was lost"
            self._log_lost("nats disconnected", reason=reason)

    async def reconnected(self) -> None:
        self._logged_reason = ("", -math.inf)
        self.last_error = None
        self._log_connected("nats reconnected", server=_server(self._client))
