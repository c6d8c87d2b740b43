"""The driver of NATS, with what it leaves out of an address. Engine, service and command line all connect through it.

An address is read as NATS's own tools read it: `tls://user:p%40ss@one:4222,two:4222` is encrypted, at both servers and at
those that they tell of, and the user is the same at all of them. The driver encrypts only where the server asks for it, so
that whoever stands in between could leave that out and be told the password; it sends a password as it is spelled in the
address, `%40` for `@`; and it leaves scheme and user behind at the second server.
"""

import ssl
import time
from typing import Any, Final
from urllib.parse import unquote

from nats.aio.client import DEFAULT_BUFFER_SIZE, Client, Srv
from nats.aio.transport import TcpTransport
from nats.errors import Error

__all__ = ["NatsDriver", "unfit"]

UNENCRYPTED: Final = (
    "The NATS server does not encrypt, and tls:// asks for it: set up TLS there, or say nats://."
)
UNTRUSTED: Final = (
    "The NATS server's certificate is not trusted: SSL_CERT_FILE names the file of who signed it, and it must be made for "
    "the host in the URL."
)
BROKEN_OFF: Final = (
    "The NATS server broke off the encrypted connection: it must not ask its clients for a certificate, because Keyhouse "
    "has none to show."
)
NO_GREETING: Final = (
    "What answers there does not greet as a NATS server does: look at host and port in the URL. With handshake_first, a "
    "NATS server does not either: leave that out there."
)


class _NoGreetingError(Error):
    """The first line did not come, or was another's."""


class _UnencryptedError(Error):
    """`tls://` was asked for, and the server has none. Nothing was sent."""


class NatsDriver(Client):
    """Use it as the driver's own."""

    def _setup_server_pool(self, connect_url: str | list[str]) -> None:
        given = [connect_url] if isinstance(connect_url, str) else connect_url
        scheme = given[0].partition("://")[0] if given and "://" in given[0] else "nats"
        super()._setup_server_pool(
            [each if "://" in each else f"{scheme}://{each}" for each in given]
        )

    async def _connect_to_server(self, s: Srv) -> None:
        """As the driver's own, which has no other transport in its place, and leaves a connection open that came to nothing
        while it reconnects: who does not hang up by himself would keep one for each try."""
        s.last_attempt = time.monotonic()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        self._transport = self._transport or _Transport()  # type: ignore[no-untyped-call]
        await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, self.options["connect_timeout"])

    async def _process_connect_init(self) -> None:
        """The driver has one error for a server that refuses and for one that is none; this one can be told by its type.
        What it does not foresee of a stranger's first line would end its reconnecting."""
        self._server_info: dict[str, Any] = {}
        try:
            await super()._process_connect_init()
        except Exception as error:
            if isinstance(error, OSError) or (isinstance(error, Error) and self._server_info):
                raise
            raise _NoGreetingError(str(error)) from error

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        server = self._current_server
        if initial_connection and server is not None and server.uri.scheme == "tls":
            if not (info.get("tls_required") or info.get("tls_available")):
                raise _UnencryptedError(UNENCRYPTED)
            info["tls_required"] = True  # which is what the driver looks at, after this
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        """Says who connects. A server without a user in its address is told the first one that there is."""
        if self._user_credentials is None and self._nkeys_seed is None:
            for server in (self._current_server, *self._server_pool):
                if server is not None and server.uri.username is not None:
                    user, password = server.uri.username, server.uri.password
                    names = (
                        {"token": user}
                        if password is None
                        else {"user": user, "password": password}
                    )
                    self.options |= {name: unquote(value) for name, value in names.items()}
                    break
        return super()._connect_command()

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """What is still to be sent is left where there is nobody to take it: the driver would write it to a closed
        connection, and uvloop raises what nobody expects."""
        if not self.is_connected or (
            isinstance(self._transport, _Transport) and self._transport.is_closing
        ):
            self._pending, self._pending_data_size = [], 0
        await super()._close(status, do_cbs)


class _Transport(TcpTransport):
    @property
    def is_closing(self) -> bool:
        return self._io_writer is None or self._io_writer.is_closing()

    async def connect_tls(self, *of: Any, **named: Any) -> None:
        """A connection that could not be encrypted is closed, and what was made for the plain one is not told: who waits for
        its end, as the driver does when it is closed, would wait for ever."""
        try:
            await super().connect_tls(*of, **named)
        except BaseException:
            self._io_reader = self._io_writer = None
            raise
        assert self._io_writer is not None
        vars(self._io_writer.transport.get_protocol())["_over_ssl"] = (
            True  # else asyncio logs a warning when it ends
        )


def unfit(cause: BaseException | None) -> str | None:
    """The sentence for a connection that could not be made secure, or was not to a NATS server; `None` where it failed for
    another reason."""
    if isinstance(cause, _NoGreetingError):
        return NO_GREETING
    if isinstance(cause, _UnencryptedError):
        return UNENCRYPTED
    if isinstance(cause, ssl.SSLCertVerificationError):
        return UNTRUSTED
    return BROKEN_OFF if isinstance(cause, ssl.SSLError) else None
