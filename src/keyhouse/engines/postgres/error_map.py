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


class _Fault(NamedTuple):
    raised: tuple[type[Exception], ...]
    meaning: type[KeyhouseError]
    sentence: str


DRIVER = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""All that the driver raises, by itself or for the server."""

LOST: tuple[type[Exception], ...] = (
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

UNSENT = (asyncpg.InterfaceError,)
"""The driver knew that the connection was gone, or busy, before it sent anything."""

REPEATED = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""The server undid the transaction so that another could go on; the same again may well pass."""

UNKEEPABLE: Final = "PostgreSQL can't keep this: text that is not UTF-8 or holds U+0000, or a number beyond 64 bits."

_FAULTS = (
    _Fault(
        (asyncpg.DiskFullError,), FullError, "The server's disk is full; make room, then try again."
    ),
    _Fault(
        (asyncpg.InvalidAuthorizationSpecificationError,),
        UnavailableError,
        "The server does not let this user in; look at the user and the password in the URL.",
    ),
    _Fault(
        (asyncpg.InvalidCatalogNameError,),
        UnavailableError,
        "The server has no such database; create it first.",
    ),
    _Fault(
        (asyncpg.InsufficientPrivilegeError,),
        UnavailableError,
        "The user may not do this in the database; grant it, or name another user in the URL.",
    ),
    _Fault(
        (asyncpg.CannotConnectNowError,),
        UnavailableError,
        "The server is starting or stopping; try again.",
    ),
    _Fault(
        (asyncpg.LockNotAvailableError,),
        UnavailableError,
        "Another transaction kept the rows locked; try again.",
    ),
    _Fault(
        (asyncpg.QueryCanceledError,),
        UnavailableError,
        "The server broke the statement off; try again.",
    ),
    _Fault(
        (asyncpg.ReadOnlySQLTransactionError,),
        UnavailableError,
        "The server only reads, as a standby does; name the one that writes.",
    ),
    _Fault(REPEATED, UnavailableError, "The transaction kept colliding with others; try again."),
    _Fault(
        (asyncpg.UndefinedTableError, asyncpg.UndefinedFunctionError, asyncpg.UndefinedColumnError),
        UnreadableError,
        "The tables are not there as this code knows them; restore them, or run the migrations.",
    ),
    _Fault(
        (asyncpg.DataCorruptedError, asyncpg.IndexCorruptedError),
        UnreadableError,
        "The database is damaged; restore it from a backup.",
    ),
    _Fault(
        (asyncpg.InsufficientResourcesError,),
        UnavailableError,
        "The server has no connection or memory to spare; try again, or give it more.",
    ),
    _Fault((asyncpg.DataError, ValueError), DocumentError, UNKEEPABLE),
    _Fault(
        LOST,
        UnavailableError,
        "The server can't be reached; see that it runs, and look at host and port in the URL.",
    ),
    _Fault(UNSENT, UnavailableError, "The connection was already gone; try again."),
)


def translated(error: Exception, server: str) -> KeyhouseError:
    """The error to raise for the driver's: what happened, what to do, and where. Nothing was written."""
    for fault in _FAULTS:
        if isinstance(error, fault.raised):
            return fault.meaning(fault.sentence, server=server, detail=str(error)).caused_by(error)
    sentence = "The engine failed in a way that it does not know."
    return EngineError(sentence, server=server, detail=str(error)).caused_by(error)


def translated_commit(error: Exception, server: str) -> KeyhouseError:
    """For an error of a commit that was sent: when the connection went, nobody knows how far it came."""
    if isinstance(error, LOST):
        sentence = "The connection was lost during the commit; repeat it with the same batch id."
        return UnknownOutcomeError(sentence, server=server, detail=str(error)).caused_by(error)
    return translated(error, server)


def is_of_all(failure: KeyhouseError) -> bool:
    """Whether the failure is the server's, and no one batch of a call is to blame for it."""
    return isinstance(failure, (FullError, UnavailableError, UnknownOutcomeError, UnreadableError))
