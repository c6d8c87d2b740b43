"""Errors of a NATS connection, for the engine, the service and the command line."""

import ssl
from typing import Final

from nats.errors import Error, StaleConnectionError, UnexpectedEOF

from keyhouse.errors import UnavailableError

__all__ = [
    "ClosedByServerError",
    "NotNatsError",
    "PermissionDeniedError",
    "UnencryptedError",
    "connection_problem",
    "is_loss",
    "is_permanent",
    "is_refusal",
    "not_accepted",
    "reconnecting",
    "reported_cause",
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


REJECTED: Final = (
    "The NATS server rejects the connection:"
    " check user and password in its URL, or nats_credentials."
)

USER_NEEDED: Final = (
    "The NATS server rejects this user: name one in the URL, nats://USER:PASSWORD@host:4222. For "
    "the embedded server with nats_auth, set KEYHOUSE_DATA to the data folder of keyhouse serve."
)


class ClosedByServerError(Error):
    """The server ended the connection and gave a reason."""


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


def is_loss(error: Exception) -> bool:
    """Return whether the error ends an established connection."""
    return isinstance(error, (OSError, UnexpectedEOF, StaleConnectionError, ClosedByServerError))


def reconnecting(cause: Exception | None) -> UnavailableError:
    """The error of a connection that is lost for now, by the last reason that is known."""
    sentence = (
        REJECTED
        if cause is not None and is_refusal(cause)
        else connection_problem(cause) or "The connection to NATS is lost."
    )
    return UnavailableError(f"{sentence} It is retried.")


def is_permanent(error: Exception) -> bool:
    """Return whether a retry cannot succeed."""
    return is_refusal(error) or connection_problem(error) is not None


def reported_cause(known: Exception | None, new: Exception) -> Exception:
    """Return the error to report of a connection that failed: a rejected one is often reset too."""
    return new if known is None or not is_permanent(known) else known


def not_accepted(cause: Exception) -> str:
    """Return the sentence for a client whose connection failed."""
    if is_refusal(cause):
        return USER_NEEDED
    return connection_problem(cause) or (
        "No NATS server accepts this connection: start keyhouse serve, or name another."
    )


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
