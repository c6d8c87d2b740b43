"""The connection of a client program: its first attempt fails at once, a lost one is restored."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from nats.errors import Error as NatsError

from keyhouse.errors import UnavailableError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.errors import is_permanent, not_accepted, reported_cause

__all__ = ["connect_client"]

_CONNECT_SECONDS: Final = 10
_REFUSED_SECONDS: Final = 0.2
"""Time in which nats-py closes a connection that was refused."""


async def connect_client(url: str, *, raise_denied: bool = False, **options: Any) -> NatsClient:
    """Connect to the servers of `url`, separated by commas; UnavailableError if none answers.

    nats-py itself retries for two minutes, and logs a traceback each time. `options` are its own.
    With `raise_denied`, for commands: PermissionDeniedError if replies could not be received, or if
    a request is denied; requests are then sent one at a time.
    """
    servers = url.split(",")
    client = NatsClient(raise_denied=raise_denied)
    cause: Exception | None = None
    callback = options.pop("error_cb", None)

    async def note(error: Exception) -> None:
        nonlocal cause
        if timeout.when() is None:
            if callback is not None:
                await callback(error)
            return
        cause = reported_cause(cause, error)
        if is_permanent(error) or len(servers) == 1:
            with suppress(RuntimeError):  # it has expired; nats-py would try again
                timeout.reschedule(asyncio.get_running_loop().time() + _REFUSED_SECONDS)

    try:
        async with asyncio.timeout(_CONNECT_SECONDS) as timeout:
            await client.connect(
                servers,
                **{"connect_timeout": _CONNECT_SECONDS, "max_reconnect_attempts": -1} | options,
                error_cb=note,
            )
            timeout.reschedule(None)
    except (NatsError, OSError) as error:  # TimeoutError is an OSError
        cause = cause or error
        await client.close()  # which may note another error
        raise UnavailableError(
            not_accepted(cause),
            servers=",".join(server.rpartition("@")[2] for server in servers),
            reason=str(cause) or type(cause).__name__,
        ) from None
    if raise_denied:
        try:
            await client.check_inbox()
        except BaseException:
            await client.close()
            raise
    return client
