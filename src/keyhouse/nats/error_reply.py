"""An error as its answer: flat, with the code of its type.

Whoever made the mistake is told all about it. Of what went wrong on our side only the sentence goes out: the fields, which
may name files or servers, are for the log. Of a write in doubt not even that: an engine's sentence says what its own caller
can do, and who asks over NATS has no batch id to repeat.
"""

from typing import Final

import msgspec

from keyhouse.errors import (
    AccessError,
    CallerError,
    ConflictError,
    CounterError,
    KeyhouseError,
    UnknownOutcomeError,
)

_IN_DOUBT: Final = "The outcome is unknown: it may have been done, or not. Read what is there before you repeat it."
_TOLD_IN_FULL: Final = (AccessError, CallerError, ConflictError, CounterError)

_encode = msgspec.json.Encoder().encode


class _Failure(msgspec.Struct):
    success: bool
    error_code: str
    message: str


def failure(error: BaseException) -> bytes:
    """What is answered when `error` was raised. One that is none of ours says nothing of itself."""
    if not isinstance(error, KeyhouseError):
        return _encode(
            _Failure(
                False,
                KeyhouseError.code,
                "Something unexpected went wrong; the service's log has it.",
            )
        )
    if isinstance(error, UnknownOutcomeError):
        return _encode(_Failure(False, error.code, _IN_DOUBT))
    message = str(error) if isinstance(error, _TOLD_IN_FULL) else error.sentence
    return _encode(
        _Failure(False, error.code, message.encode("utf-8", "backslashreplace").decode())
    )
