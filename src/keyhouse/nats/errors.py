"""Errors of a NATS connection, for the engine, the service and the command line."""

import ssl
from typing import Final

from nats.errors import Error

from keyhouse.errors import UnavailableError

__all__ = [
    "NotNatsError",
    "PermissionDeniedError",
    "UnencryptedError",
    "connection_problem",
    "is_permanent",
    "is_refusal",
    "unreachable",
]

UNENCRYPTED: Final = (
    "The NATS server does not offer TLS, which tls:// requires: set up TLS there, or use nats://."
)
UNTRUSTED: Final = (
    "The NATS server's certificate is not trusted: set SSL_CERT_FILE to the file of its CA, and "
    "check that the certificate names the host in the URL."
)
TLS_FAILED: Final = (
    "The NATS server broke off the TLS handshake: it must not require client certificates, "
    "because Keyhouse has none."
)
NOT_NATS: Final = (
    "The server at this address does not greet as a NATS server does: check host and port in the "
    "URL. A NATS server with handshake_first does not either: turn that off there."
)


class NotNatsError(Error):
    """The first line was missing, or was not the greeting of a NATS server."""


class UnencryptedError(Error):
    """`tls://` was asked for and the server does not offer TLS. Nothing was sent."""


class PermissionDeniedError(Error):
    """The server does not allow this user to publish or subscribe there."""


def connection_problem(cause: BaseException | None) -> str | None:
    """Return the sentence for a connection that is not secure, or not to a NATS server.

    Returns None if it failed for another reason.
    """
    if isinstance(cause, NotNatsError):
        return NOT_NATS
    if isinstance(cause, UnencryptedError):
        return UNENCRYPTED
    if isinstance(cause, ssl.SSLCertVerificationError):
        return UNTRUSTED
    return TLS_FAILED if isinstance(cause, ssl.SSLError) else None


def is_refusal(error: Exception) -> bool:
    """Return whether the server itself rejected the connection: nats-py raises its base class."""
    return type(error) is Error


def is_permanent(error: Exception) -> bool:
    """Return whether a retry cannot succeed."""
    return is_refusal(error) or connection_problem(error) is not None


def unreachable(server: str, cause: Exception) -> UnavailableError:
    if is_refusal(cause):
        sentence = (
            "The NATS server rejects the connection: check the user, the password or the "
            "credentials in the URL."
        )
    else:
        sentence = connection_problem(cause) or (
            "The NATS server cannot be reached;"
            " check that it runs, and the host and port in the URL."
        )
    return UnavailableError(sentence, server=server, detail=str(cause)).caused_by(cause)
