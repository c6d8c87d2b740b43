"""What the driver raises and the server answers, as what the engine raises. The only place that chooses by either."""

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
    """The `error` of an answer of JetStream. `code` is like HTTP's, `err_code` says what it is."""

    code: int
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct, frozen=True):
    """The answer to a publish; to an atomic batch, `seq` is the sequence of its last message."""

    seq: int = 0
    error: ApiError | None = None


ABSENT: Final = frozenset({10_014, 10_037, 10_059})
"""No such consumer, message, stream."""

MISMATCH: Final = frozenset({10_071, 10_164})
"""A row is not at the sequence that was expected. 10164: or somebody else writes it, or checks it, at this moment."""

_DISABLED: Final = frozenset({10_039, 10_076})
"""JetStream is not enabled for this account, or not at all."""

_FULL: Final = frozenset({10_002, 10_023, 10_028, 10_047, 10_077})
_TOO_LARGE: Final = frozenset({10_054})
_PASSING: Final = frozenset({10_176})
"""A batch that lost some of its messages, because the leader changed under it: nothing of it was written."""


_TOO_LARGE_FOR_IT: Final = "The bucket takes no message so large; raise its max_msg_size."
_ENABLE: Final = "The NATS server answers without JetStream; enable it there, and for this account."


def translate(refusal: ApiError) -> KeyhouseError:
    """The error for an answer that says no. Nothing was written."""
    detail = {"detail": refusal.description, "code": refusal.err_code}
    if refusal.err_code in _DISABLED:
        return UnavailableError(_ENABLE, **detail)
    if refusal.err_code in _FULL:
        return FullError(
            "The bucket, or the disk of the NATS server, is full; make room, then try again.",
            **detail,
        )
    if refusal.err_code in _TOO_LARGE:
        return LimitError(_TOO_LARGE_FOR_IT, **detail)
    if refusal.err_code in _PASSING or refusal.code in (408, 429, 500, 503):
        return UnavailableError("JetStream can't serve this now; try again.", **detail)
    return EngineError("JetStream refused in a way that the engine does not know.", **detail)


def too_large(limit: int) -> LimitError:
    """Of an atomic batch, the server says only that a message is missing."""
    return LimitError(_TOO_LARGE_FOR_IT, limit=limit)


def not_connected(cause: Exception | None = None) -> UnavailableError:
    detail = str(cause) if cause is not None else ""
    return UnavailableError(
        "There is no connection to the NATS server; try again.", detail=detail
    ).caused_by(cause)


def no_jetstream(server: str) -> UnavailableError:
    return UnavailableError(_ENABLE, server=server)


def no_reply(request: str, trouble: Exception | None) -> UnavailableError:
    """A server that does not allow a request says so aside, and answers nothing."""
    if trouble is None:
        return UnavailableError("The NATS server did not answer; try again.", request=request)
    sentence = "The NATS server did not answer, and complained; if of permissions, grant them to this user."
    return UnavailableError(sentence, request=request, detail=str(trouble))


class NoResponders(UnavailableError):
    """Nobody listens to what was asked: no leader at this moment, or no JetStream at all."""


def no_responders() -> NoResponders:
    return NoResponders("No NATS server leads the stream at this moment; try again.")


def reply_timeout(seconds: float) -> UnknownOutcomeError:
    return UnknownOutcomeError(
        "The NATS server did not answer in time; repeat with the same batch id.", seconds=seconds
    )


def connection_lost() -> UnknownOutcomeError:
    return UnknownOutcomeError(
        "The connection broke before the NATS server answered; repeat with the same batch id."
    )


def server_too_old(version: str, needed: str) -> UsageError:
    return UsageError(
        "The NATS server is too old to commit several rows at once; it must be of this version or newer.",
        version=version,
        needed=needed,
    )
