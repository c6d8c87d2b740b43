"""Maps asyncpg errors to Keyhouse errors. No other module inspects the driver's errors."""

from typing import Final, NamedTuple

import asyncpg

from keyhouse.errors import (
    DocumentError,
    EngineError,
    FullError,
    KeyhouseError,
    UnavailableError,
    UnknownOutcomeError,
    UnreadableError,
)


class _Rule(NamedTuple):
    raised: tuple[type[Exception], ...]
    error_type: type[KeyhouseError]
    message: str


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

_RULES = (
    _Rule(
        (asyncpg.DiskFullError,),
        FullError,
        "The server's disk is full; free some space, then try again.",
    ),
    _Rule(
        (asyncpg.InvalidAuthorizationSpecificationError,),
        UnavailableError,
        "The server rejects the login; check the user and password in the URL.",
    ),
    _Rule(
        (asyncpg.InvalidCatalogNameError,),
        UnavailableError,
        "The database does not exist; create it first.",
    ),
    _Rule(
        (asyncpg.InsufficientPrivilegeError,),
        UnavailableError,
        "The user lacks a privilege in the database; grant it, or use another user.",
    ),
    _Rule(
        (asyncpg.CannotConnectNowError,),
        UnavailableError,
        "The server is starting or stopping; try again.",
    ),
    _Rule(
        (asyncpg.LockNotAvailableError,),
        UnavailableError,
        "Another transaction held a lock for too long; try again.",
    ),
    _Rule(
        (asyncpg.QueryCanceledError,),
        UnavailableError,
        "The server cancelled the statement; try again.",
    ),
    _Rule(
        (asyncpg.ReadOnlySQLTransactionError,),
        UnavailableError,
        "The server is read-only, such as a standby; use the primary.",
    ),
    _Rule(RETRYABLE, UnavailableError, "The transaction kept conflicting with others; try again."),
    _Rule(
        (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.UndefinedColumnError),
        UnreadableError,
        "The tables do not match this version; restore them, or run the migrations.",
    ),
    _Rule(
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        UnreadableError,
        "The database is damaged; restore it from a backup.",
    ),
    _Rule(
        (asyncpg.InsufficientResourcesError,),
        UnavailableError,
        "The server is out of connections or memory; try again, or raise its limits.",
    ),
    _Rule((asyncpg.DataError, ValueError), DocumentError, NOT_STORABLE),
    _Rule(
        CONNECTION_LOST,
        UnavailableError,
        "The server cannot be reached; check that it runs, and the host and port in the URL.",
    ),
    _Rule(NOT_SENT, UnavailableError, "The connection was closed; try again."),
)


def is_out_of_connections(error: KeyhouseError) -> bool:
    """Return whether the server, or the user's limit, allows no further connection."""
    return isinstance(error.__cause__, asyncpg.TooManyConnectionsError)


def translate(error: Exception, server: str) -> KeyhouseError:
    """Return the error to raise for a driver error. Nothing was written."""
    for rule in _RULES:
        if isinstance(error, rule.raised):
            return rule.error_type(rule.message, server=server, detail=str(error)).caused_by(error)
    message = "The driver raised an unknown error."
    return EngineError(message, server=server, detail=str(error)).caused_by(error)


def translate_commit_error(error: Exception, server: str) -> KeyhouseError:
    """Translate an error of a commit that was sent: if the connection is lost, the outcome is
    unknown."""
    if isinstance(error, CONNECTION_LOST):
        message = "The connection was lost during the commit; repeat it with the same batch id."
        return UnknownOutcomeError(message, server=server, detail=str(error)).caused_by(error)
    return translate(error, server)
