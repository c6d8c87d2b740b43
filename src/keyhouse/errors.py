"""All errors that Keyhouse raises. The type says who can fix it.

KeyhouseError
├── DeclarationError        invalid schema; raised when it is declared, before any row is touched
├── CallerError             invalid call; nothing was written
│   ├── KeyFieldError       a field cannot be represented in its key
│   ├── DocumentError       not a JSON document that every engine stores alike
│   ├── RecordError         a value does not have its record's type
│   ├── LimitError          too long, too large, too many
│   ├── CursorError         a cursor that this scan did not return
│   ├── MalformedError      a request that is not JSON
│   ├── MissingFieldError   a request without a required field
│   ├── UsageError          a call that the declaration does not allow
│   └── NotFoundError       not found
├── AccessError             not allowed, or not now; nothing was written
│   ├── TokenError          no token, or one that is not accepted
│   ├── ScopeError          the token does not allow this
│   ├── RateError           too many requests
│   ├── QuotaError          the tenant's quota is used up
│   ├── BusyError           too many requests are waiting
│   └── PreparingError      a migration or the build of an index is not done yet
├── ConflictError           valid, but it conflicts with the stored state; nothing was written
│   ├── RevisionError       the row is not at the expected revision
│   ├── UniqueError         another record holds a unique value
│   ├── LinkError      a record that is linked to is absent, or is still referred to
│   ├── ContentionError     every attempt of a transaction lost a race
│   └── LeaseError          another runner works on this migration or job
├── DataError               a stored row does not match the schema
│   ├── UnreadableError     a row that does not decode
│   │   └── SealedError     sealed with a key that is not in the key ring
│   ├── NewerError          written by newer code than this
│   ├── UnbuiltIndexError   a new derived row lacks records that the space has
│   └── CounterError        not a counter, or it would overflow
└── EngineError             the engine
    ├── UnavailableError    not reachable; nothing was written; retry
    ├── UnknownOutcomeError sent, not confirmed; retry with the same batch id
    ├── FullError           no space left on the disk; nothing was written
    ├── LockedError         another process has it open
    ├── ClosedError         used after close
    └── WatchExpiredError   pruned or future revision: scan again, then watch

An error is a fixed sentence plus fields: programs read `type`, `code` and `fields`, people read
`str(error)`. `status` is the HTTP status, `code` the name that clients see, on every API; several
classes share a code, and each has its own `type`, `unique` for UniqueError.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import islice
from math import isfinite
from typing import Any, ClassVar, Final, Self

import msgspec

from keyhouse.private_types import hidden_in

_TEXT_CHARS_MAX: Final = 200
_ITEMS_MAX: Final = 20
_VALUES_MAX: Final = 100
"""Values in one field of a response: it may be what the caller sent."""
_EXAMINED_MAX: Final = 10_000
"""Values of a field that are examined for private members; one with more is not printed."""


class KeyhouseError(Exception):
    """The base of all errors. `sentence` is constant where it is raised; `fields` hold the rest.

    `type` tells errors of one `code` apart: `key-field` for KeyFieldError. It is the same in
    Python, from a RemoteStore, and after `urn:keyhouse:error:` in responses over HTTP and NATS. An
    error that a client received has the `type` and `code` that its service named.
    """

    type: str = "keyhouse"
    status: ClassVar[int] = 500
    code: str = "INTERNAL_ERROR"
    internal: ClassVar[frozenset[str]] = frozenset({"template"})
    """Fields about the keyspace, for programs that hold the store: no response has them."""

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)
        name = cls.__name__.removesuffix("Error") or "Error"
        cls.type = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()

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
        """Set the driver's exception as the cause, for an error that is raised later."""
        self.__cause__ = cause
        return self

    def public(self) -> Self:
        """Return the error as a response may show it: without its internal fields."""
        if self.internal.isdisjoint(self.fields):
            return self
        shown = self.copy()
        shown.fields = {
            name: value for name, value in self.fields.items() if name not in self.internal
        }
        return shown

    def json_fields(self) -> dict[str, Any]:
        """Return the fields as JSON, shortened, whatever their types: for responses."""
        return {name: _json(value, [_VALUES_MAX]) for name, value in self.fields.items()}

    def copy(self) -> Self:
        """Return a copy for another caller, since each one adds its own traceback."""
        copied = type(self)(self.sentence, **self.fields).caused_by(self.__cause__)
        copied.type, copied.code = self.type, self.code
        return copied


def error_urn(error: KeyhouseError | type[KeyhouseError]) -> str:
    """Return the type of an error as responses have it: `urn:keyhouse:error:unique`."""
    return f"urn:keyhouse:error:{error.type}"


def _short(value: object) -> str:
    if kind := hidden_in(value, _EXAMINED_MAX):
        return f"{kind.__name__}(…)"
    try:
        text = repr(value)
    except ValueError:  # an integer with more digits than Python prints
        text = f"{type(value).__name__} too long to show"
    return text if len(text) <= 200 else text[:120] + "…" + text[-60:]


def _json(value: object, left: list[int]) -> Any:
    """Return a value as JSON, of at most as many values as are `left`."""
    left[0] -= 1
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if abs(value) < 2**53 else "a number too long to show"
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(value)
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= _TEXT_CHARS_MAX else text[:_TEXT_CHARS_MAX] + "…"
    if isinstance(value, Mapping):
        return {
            _json(name if isinstance(name, str) else str(name), left): _json(part, left)
            for name, part in _first(value.items(), left)
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [_json(each, left) for each in _first(value, left)]
    if isinstance(value, type):
        return value.__name__
    if hidden_in(value, _EXAMINED_MAX):
        return type(value).__name__
    try:
        return _json(msgspec.to_builtins(value, str_keys=True), left)
    except (TypeError, ValueError, RecursionError):  # no type of JSON: an object of a program
        return type(value).__name__


def _first(items: Iterable[Any], left: list[int]) -> Iterable[Any]:
    return islice(items, max(0, min(_ITEMS_MAX, left[0])))


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
    """Credentials are missing, or were sent and are not accepted."""

    status = 401
    code = "UNAUTHORIZED"

    def __init__(self, sentence: str, /, *, missing: bool = False, **fields: object) -> None:
        super().__init__(sentence, **fields)
        self.missing = missing


class ScopeError(AccessError):
    pass


class RateError(AccessError):
    """The field `retry_after` is a whole number of seconds."""

    status = 429
    code = "RATE_LIMITED"


class QuotaError(AccessError):
    """The field `retry_after` is a whole number of seconds."""

    status = 429
    code = "QUOTA_EXCEEDED"


class BusyError(AccessError):
    status = 503
    code = "RATE_LIMITED"


class PreparingError(AccessError):
    """The fields have the progress."""

    status = 503
    code = "PREPARING"


class ConflictError(KeyhouseError):
    status = 409
    code = "CONFLICT"


class RevisionError(ConflictError):
    status = 412


class UniqueError(ConflictError):
    internal = frozenset({"template", "index"})


class LinkError(ConflictError):
    internal = frozenset({"template", "key", "missing", "example"})


class ContentionError(ConflictError):
    status = 503


class LeaseError(ConflictError):
    pass


class DataError(KeyhouseError):
    code = "DATABASE_ERROR"


class UnreadableError(DataError):
    pass


class SealedError(UnreadableError):
    pass


class NewerError(DataError):
    pass


class UnbuiltIndexError(DataError):
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
