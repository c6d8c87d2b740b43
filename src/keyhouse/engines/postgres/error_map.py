"""Maps asyncpg errors to Keyhouse errors. No other module inspects the driver's errors."""

from typing import Final

import asyncpg

from keyhouse.engines.error_rules import Rules, translate_by
from keyhouse.errors import (
    DocumentError,
    EngineError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
)

DRIVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Everything that the driver raises, for itself or for the server."""

CONNECTION_LOST: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""The connection was lost, or timed out, during a call: the statement may have been executed.

The driver raises InternalClientError when the server's last message is still being read as the call
starts.
"""

NOT_SENT = (asyncpg.InterfaceError,)
"""The driver found the connection closed or busy before it sent anything."""

RETRYABLE = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The server rolled the transaction back in favour of another; a retry may succeed."""

NOT_STORABLE: Final = (
    "PostgreSQL cannot store this: text that is not UTF-8 or contains U+0000, or a number beyond"
    " 64 bits."
)

_DENIED = "The user lacks a privilege in the database; grant it, or use another user."
_OTHER_TABLES = "The tables do not match this version; restore them, or run the migrations."
_DAMAGED = "The database is damaged; restore it from a backup."
_NO_RESOURCES = "The server is out of connections or memory; try again, or raise its limits."
_UNREACHABLE = "The server cannot be reached; check that it runs, and the host and port in the URL."

_RULES: Rules[type[Exception] | tuple[type[Exception], ...]] = (
    (
        FullError,
        {asyncpg.DiskFullError: "The server's disk is full; free some space, then try again."},
    ),
    (
        UnreadableError,
        {
            asyncpg.UndefinedTableError: _OTHER_TABLES,
            asyncpg.UndefinedFunctionError: _OTHER_TABLES,
            asyncpg.UndefinedColumnError: _OTHER_TABLES,
            asyncpg.DataCorruptedError: _DAMAGED,
            asyncpg.IndexCorruptedError: _DAMAGED,
        },
    ),
    (DocumentError, {(asyncpg.DataError, ValueError): NOT_STORABLE}),
    (
        UnavailableError,
        {
            asyncpg.InvalidAuthorizationSpecificationError: (
                "The server rejects the login; check the user and password in the URL."
            ),
            asyncpg.InvalidCatalogNameError: "The database does not exist; create it first.",
            asyncpg.InsufficientPrivilegeError: _DENIED,
            asyncpg.CannotConnectNowError: "The server is starting or stopping; try again.",
            asyncpg.LockNotAvailableError: (
                "Another transaction held a lock for too long; try again."
            ),
            asyncpg.QueryCanceledError: "The server cancelled the statement; try again.",
            asyncpg.ReadOnlySQLTransactionError: (
                "The server is read-only, such as a standby; use the primary."
            ),
            RETRYABLE: "The transaction kept conflicting with others; try again.",
            asyncpg.InsufficientResourcesError: _NO_RESOURCES,
            CONNECTION_LOST: _UNREACHABLE,
            NOT_SENT: "The connection was closed; try again.",
        },
    ),
    (EngineError, {Exception: "The driver raised an unknown error."}),
)


def is_out_of_connections(error: KeyhouseError) -> bool:
    """Return whether the server, or the user's limit, allows no further connection."""
    return isinstance(error.__cause__, asyncpg.TooManyConnectionsError)


def translate(error: Exception, server: str) -> KeyhouseError:
    """Return the error to raise for a driver error. Nothing was written."""
    return translate_by(_RULES, lambda raised: isinstance(error, raised), error, server=server)


def translate_commit_error(error: Exception, server: str) -> KeyhouseError:
    """Translate an error of a commit that was sent: if the connection is lost, the outcome is
    unknown."""
    if isinstance(error, CONNECTION_LOST):
        message = "The connection was lost during the commit; repeat it with the same batch id."
        return UnknownOutcomeError(message, server=server, detail=str(error)).caused_by(error)
    return translate(error, server)
