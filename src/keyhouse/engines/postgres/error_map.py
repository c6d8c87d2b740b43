"""What the driver raises, as what the engine raises. The only place that chooses an error by the driver's."""

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
"""All that the driver raises, by itself or for the server."""

CONNECTION_LOST: tuple[type[Exception], ...] = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.InternalClientError,
    OSError,
    TimeoutError,
)
"""The connection, or the patience with it, ended in the midst of a call: what was sent may have been done.

The driver's internal error is what it raises when a server's last word is still being read as the call begins.
"""

NOT_SENT = (asyncpg.InterfaceError,)
"""The driver knew that the connection was gone, or busy, before it sent anything."""

RETRYABLE = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The server undid the transaction so that another could go on; the same again may well pass."""

NOT_STORABLE: Final = "PostgreSQL can't keep this: text that is not UTF-8 or holds U+0000, or a number beyond 64 bits."

_RULES = (
    _Rule(
        (asyncpg.DiskFullError,), FullError, "The server's disk is full; make room, then try again."
    ),
    _Rule(
        (asyncpg.InvalidAuthorizationSpecificationError,),
        UnavailableError,
        "The server does not let this user in; look at the user and the password in the URL.",
    ),
    _Rule(
        (asyncpg.InvalidCatalogNameError,),
        UnavailableError,
        "The server has no such database; create it first.",
    ),
    _Rule(
        (asyncpg.InsufficientPrivilegeError,),
        UnavailableError,
        "The user may not do this in the database; grant it, or name another user in the URL.",
    ),
    _Rule(
        (asyncpg.CannotConnectNowError,),
        UnavailableError,
        "The server is starting or stopping; try again.",
    ),
    _Rule(
        (asyncpg.LockNotAvailableError,),
        UnavailableError,
        "Another transaction kept the rows locked; try again.",
    ),
    _Rule(
        (asyncpg.QueryCanceledError,),
        UnavailableError,
        "The server broke the statement off; try again.",
    ),
    _Rule(
        (asyncpg.ReadOnlySQLTransactionError,),
        UnavailableError,
        "The server only reads, as a standby does; name the one that writes.",
    ),
    _Rule(RETRYABLE, UnavailableError, "The transaction kept colliding with others; try again."),
    _Rule(
        (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.UndefinedColumnError),
        UnreadableError,
        "The tables are not there as this code knows them; restore them, or run the migrations.",
    ),
    _Rule(
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        UnreadableError,
        "The database is damaged; restore it from a backup.",
    ),
    _Rule(
        (asyncpg.InsufficientResourcesError,),
        UnavailableError,
        "The server has no connection or memory to spare; try again, or give it more.",
    ),
    _Rule((asyncpg.DataError, ValueError), DocumentError, NOT_STORABLE),
    _Rule(
        CONNECTION_LOST,
        UnavailableError,
        "The server can't be reached; see that it runs, and look at host and port in the URL.",
    ),
    _Rule(NOT_SENT, UnavailableError, "The connection was already gone; try again."),
)


def translate(error: Exception, server: str) -> KeyhouseError:
    """The error to raise for the driver's: what happened, what to do, and where. Nothing was written."""
    for rule in _RULES:
        if isinstance(error, rule.raised):
            return rule.error_type(rule.message, server=server, detail=str(error)).caused_by(error)
    sentence = "The engine failed in a way that it does not know."
    return EngineError(sentence, server=server, detail=str(error)).caused_by(error)


def translate_commit_error(error: Exception, server: str) -> KeyhouseError:
    """For an error of a commit that was sent: when the connection went, nobody knows how far it came."""
    if isinstance(error, CONNECTION_LOST):
        sentence = "The connection was lost during the commit; repeat it with the same batch id."
        return UnknownOutcomeError(sentence, server=server, detail=str(error)).caused_by(error)
    return translate(error, server)
