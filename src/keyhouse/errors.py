"""Every error that Keyhouse raises, with the blame in its type.

KeyhouseError
├── DeclarationError        the author of a schema: raised when the schema is declared, before any row is touched
├── CallerError             the caller sent what can't be; nothing was written
│   ├── KeyFieldError       a field can't be represented in its key
│   ├── DocumentError       a value is not a JSON document that every engine keeps alike
│   ├── RecordError         a value does not have its record's type
│   ├── LimitError          too long, too large, too many
│   ├── CursorError         a cursor that this scan did not give
│   ├── MalformedError      a request that is not JSON
│   ├── MissingFieldError   a request without a field that it must have
│   ├── UsageError          a call that the declaration does not allow
│   └── NotFoundError       what was asked for is not there
├── AccessError             who asks may not, or not now; nothing was written
│   ├── TokenError          no token, or one that is not accepted
│   ├── ScopeError          the token does not allow this
│   ├── RateError           too many requests in too short a time
│   ├── QuotaError          the tenant's room is used up
│   └── BusyError           more requests are waiting than can be taken
├── ConflictError           the request is fine, the stored state says no; nothing was written
│   ├── RevisionError       the row is not at the revision that the caller expected
│   ├── UniqueError         another record holds a unique value
│   ├── ContentionError     every try of a transaction lost its race
│   └── LeaseError          another runner works on this migration or job
├── DataError               a stored row is not what the schema says
│   ├── UnreadableError     a row that does not decode
│   ├── NewerError          written by newer code than this
│   └── CounterError        not a counter, or one that would pass its bounds
└── EngineError             the engine
    ├── UnavailableError    not reachable now; nothing was written; try again
    ├── UnknownOutcomeError sent, not confirmed: it may or may not be written; repeat with the same batch id
    ├── FullError           no room on the disk; nothing was written
    ├── LockedError         another process has it
    ├── ClosedError         used after close
    └── WatchExpiredError   the changes since that revision are no longer kept, or still to come: scan again, then watch

An error is a fixed sentence and its fields, never a formatted guess: programs read `code` and `fields`, people read
`str(error)`. `status` is the HTTP status and `code` the machine's name for it, on every face.
"""

from typing import ClassVar, Self


class KeyhouseError(Exception):
    """The base of all. `sentence` is fixed per place raised; what varies is in `fields`."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, sentence: str, /, **fields: object) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.fields = fields

    def __str__(self) -> str:
        if not self.fields:
            return self.sentence
        shown = ", ".join(f"{name}={_short(value)}" for name, value in self.fields.items())
        return f"{self.sentence} ({shown})"

    def caused_by(self, cause: BaseException | None) -> Self:
        """The same, with what a driver raised behind it, for one that is not raised at once."""
        self.__cause__ = cause
        return self

    def copy(self) -> Self:
        """The same for another caller: each adds its own traceback."""
        return type(self)(self.sentence, **self.fields).caused_by(self.__cause__)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = f"{type(value).__name__} too long to show"
    return text if len(text) <= 200 else text[:120] + "…" + text[-60:]


class DeclarationError(KeyhouseError):
    pass


class CallerError(KeyhouseError):
    status = 400
    code = "VALIDATION_ERROR"


class KeyFieldError(CallerError):
    pass


class DocumentError(CallerError):
    pass


class RecordError(CallerError):
    status = 422


class LimitError(CallerError):
    status = 413
    code = "VALUE_TOO_LARGE"


class CursorError(CallerError):
    pass


class MalformedError(CallerError):
    code = "INVALID_JSON"


class MissingFieldError(CallerError):
    code = "MISSING_FIELD"


class UsageError(CallerError):
    pass


class NotFoundError(CallerError):
    status = 404
    code = "NOT_FOUND"


class AccessError(KeyhouseError):
    status = 403
    code = "FORBIDDEN"


class TokenError(AccessError):
    status = 401
    code = "UNAUTHORIZED"


class ScopeError(AccessError):
    pass


class RateError(AccessError):
    """`retry_after` is in its fields: seconds, a whole number."""

    status = 429
    code = "RATE_LIMITED"


class QuotaError(AccessError):
    """`retry_after` is in its fields: seconds, a whole number."""

    status = 429
    code = "QUOTA_EXCEEDED"


class BusyError(AccessError):
    status = 503
    code = "RATE_LIMITED"


class ConflictError(KeyhouseError):
    status = 409
    code = "CONFLICT"


class RevisionError(ConflictError):
    status = 412


class UniqueError(ConflictError):
    pass


class ContentionError(ConflictError):
    status = 503


class LeaseError(ConflictError):
    pass


class DataError(KeyhouseError):
    code = "DATABASE_ERROR"


class UnreadableError(DataError):
    pass


class NewerError(DataError):
    pass


class CounterError(DataError):
    status = 409
    code = "CONFLICT"


class EngineError(KeyhouseError):
    status = 503
    code = "DATABASE_ERROR"


class UnavailableError(EngineError):
    pass


class UnknownOutcomeError(EngineError):
    status = 504


class FullError(EngineError):
    status = 507


class LockedError(EngineError):
    pass


class ClosedError(EngineError):
    pass


class WatchExpiredError(EngineError):
    status = 410
    code = "WATCH_EXPIRED"
