"""Maps NATS and JetStream errors to Keyhouse errors. No other module inspects error codes."""

from typing import Final

import msgspec

from keyhouse.errors import (
    EngineError,
    FullError,
    KeyhouseError,
    LimitError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)


class ApiError(msgspec.Struct, frozen=True):
    """The `error` of a JetStream reply: `code` is an HTTP status, `err_code` the specific error."""

    code: int
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """The reply to a publish. For an atomic batch, `seq` is the sequence of its last message."""

    seq: int = 0
    error: ApiError | None = None


ABSENT: Final = frozenset({10_014, 10_037, 10_059})
"""The consumer, message or stream does not exist."""

MISMATCH: Final = frozenset({10_071, 10_164})
"""A row is not at the expected sequence. 10164: another batch is writing or checking it."""

_DISABLED: Final = frozenset({10_039, 10_076})
"""JetStream is not enabled, for this account or at all."""

_FULL: Final = frozenset({10_002, 10_023, 10_028, 10_047, 10_077})
_TOO_LARGE: Final = frozenset({10_054})
_TRANSIENT: Final = frozenset({10_176})
"""A batch lost some of its messages in a leader change: nothing was written."""

_MESSAGE_TOO_LARGE: Final = "The message exceeds the bucket's max_msg_size; raise it."
_NO_JETSTREAM: Final = (
    "JetStream is not enabled on the NATS server, or for this account; enable it."
)


def translate(error: ApiError) -> KeyhouseError:
    """Return the error to raise for a JetStream error. Nothing was written."""
    detail = {"detail": error.description, "code": error.err_code}
    if error.err_code in _DISABLED:
        return UnavailableError(_NO_JETSTREAM, **detail)
    if error.err_code in _FULL:
        return FullError(
            "The bucket, or the disk of the NATS server, is full; free some space, then try again.",
            **detail,
        )
    if error.err_code in _TOO_LARGE:
        return LimitError(_MESSAGE_TOO_LARGE, **detail)
    if error.err_code in _TRANSIENT or error.code in (408, 429, 500, 503):
        return UnavailableError("JetStream is temporarily unavailable; try again.", **detail)
    return EngineError("JetStream returned an unknown error.", **detail)


def too_large(limit: int) -> LimitError:
    """Return the error for a message above the limit; the server does not report it in a batch."""
    return LimitError(_MESSAGE_TOO_LARGE, limit=limit)


def not_connected(cause: Exception | None = None) -> UnavailableError:
    detail = str(cause) if cause is not None else ""
    return UnavailableError(
        "Not connected to the NATS server; try again.", detail=detail
    ).caused_by(cause)


def no_jetstream(server: str) -> UnavailableError:
    return UnavailableError(_NO_JETSTREAM, server=server)


def no_reply(request: str, reported: Exception | None) -> UnavailableError:
    """Return the error for a request without a reply. A denied request gets none, only an async
    error."""
    if reported is None:
        return UnavailableError("The NATS server did not answer; try again.", request=request)
    message = (
        "The NATS server did not answer and reported an error;"
        " if it is about permissions, grant them."
    )
    return UnavailableError(message, request=request, detail=str(reported))


class NoResponders(UnavailableError):
    """No subscriber for the request: no leader at the moment, or no JetStream at all."""


def no_responders() -> NoResponders:
    return NoResponders("The stream has no leader at the moment; try again.")


def reply_timeout(seconds: float) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        "The NATS server did not answer in time; repeat with the same batch id.", seconds=seconds
    )


def connection_lost() -> UnknownOutcomeError:
    return UnknownOutcomeError(
        "The connection was lost before the NATS server answered; repeat with the same batch id."
    )


def server_too_old(version: str, needed: str) -> UsageError:
    return UsageError(
        "The NATS server is too old: it lacks atomic batches.",
        version=version,
        needed=needed,
    )
