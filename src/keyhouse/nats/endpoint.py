"""Endpoints: the subject that is answered, the body that is decoded, and the reply to an error."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, Generic, NoReturn, Protocol, TypeVar

import msgspec
from msgspec import UNSET

from keyhouse.advice.rejected_members import rejected_in
from keyhouse.errors import (
    AccessError,
    CallerError,
    ConflictError,
    CounterError,
    DocumentError,
    KeyhouseError,
    MalformedError,
    MissingFieldError,
    RecordError,
    UnknownOutcomeError,
    UsageError,
    error_urn,
)
from keyhouse.nats.limits import NATS_PARTITIONS
from keyhouse.requests.json_checks import check_request

__all__ = [
    "ERROR_NUMBER_HEADER",
    "PROBLEM_HEADER",
    "Body",
    "Endpoint",
    "Handler",
    "Publisher",
    "ReplySubjects",
    "Request",
    "error_headers",
    "error_reply",
    "partition_of",
]

T = TypeVar("T", bound=msgspec.Struct)

_EMPTY: Final = b"{}"
_OUTCOME_UNKNOWN: Final = (
    "The outcome is unknown: the write may or may not have been applied. Read before you retry."
)
_UNEXPECTED: Final = "Unexpected error; see the service's log."
_CALLERS_OWN: Final = (AccessError, CallerError, ConflictError, CounterError)
_ERROR: Final = "Nats-Service-Error"
ERROR_NUMBER_HEADER: Final = "Nats-Service-Error-Code"
_NUMBERS: Final = {409: 409, 412: 409, 413: 413, 429: 429, 503: 503, 504: 503, 507: 503}
"""Numbers of the micro protocol's errors, by HTTP status; 400 for other mistakes of a caller."""

_PROTECTED: Final = ("_INBOX_", "$", "keyhouse.")
"""Inboxes of tenants, the server's own subjects, operations of served schemas, their changes, and
the control subjects of processes."""

_encode = msgspec.json.Encoder().encode


class ReplySubjects:
    """The subjects of all services of a process, to which none of them replies.

    A request names where its reply goes, and a service may publish where its callers may not: it
    could be made to send a caller's own text to operations or subscribers of another service. The
    services of a process share connections and permissions, so they share what is protected.
    """

    def __init__(self) -> None:
        self._protected: tuple[str, ...] = _PROTECTED

    def protect(self, *subjects: str) -> None:
        """Reply to no subject that begins as these do, up to their first wildcard."""
        added = (subject.partition("*")[0].partition(">")[0] for subject in subjects)
        self._protected = tuple(dict.fromkeys([*self._protected, *added]))

    def may_receive(self, tenant: str, reply: str) -> bool:
        """Return whether a request of a tenant may name this reply subject."""
        if not reply.startswith(self._protected):
            return True
        return reply.startswith(("_INBOX.", f"_INBOX_{tenant}."))


class Publisher(Protocol):
    """Lets a handler publish, and start tasks that end with the listener."""

    async def publish(self, subject: str, data: bytes, *, tenant: str | None = None) -> None:
        """Publish a message. It is not an error if nobody subscribes to the subject.

        With a tenant, the message waits for the tenant's turn; BusyError if too many of its bytes
        wait.
        """
        ...

    async def has_listener(self, subject: str, data: bytes) -> bool:
        """Publish a message and return whether anybody subscribes to the subject.

        A reply is not needed, and not waited for long.
        """
        ...

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task beside the requests. When the listener drains, it cancels and awaits it."""
        ...


class Request(msgspec.Struct, frozen=True, gc=False):
    """One message. `reply` is empty if the sender waits for no reply."""

    subject: str
    data: bytes
    reply: str
    publisher: Publisher


Handler = Callable[[Request], Awaitable[bytes | None]]
"""Returns the reply's bytes, or None for no reply. Errors are answered with `error_reply`."""


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A subject, which may contain wildcards, and its handler.

    Messages reach the handler one after the other, in order; the next one waits only until the
    handler first awaits something.

    One subscription can serve several `operations`, distinguished by the last token of the subject:
    the micro protocol lists each as an endpoint, at the subject given with it. `rejected` is called
    with subject and reply subject of each message that was rejected because too many are pending;
    it returns whether to reply. `queue` is the queue group, if it is not the listener's. `tenant`
    returns the tenant of a subject: tenants take turns. Where the body names it, `tenant_of_body`
    returns it, or an empty text if it does not. Without either, all messages are of one tenant.
    `problems`: error replies have a header with the error's class and fields.

    `partition_by` is the number of the wildcard that is the tenant, from 1. A server that has the
    endpoint's `mapping` appends a partition to the subject of each message, the same for all
    messages of a tenant; it can be received over another connection than others. Handlers, logs and
    the micro protocol see the subject without it.

    On the embedded server, a `public` endpoint is for clients without a password; others are for
    users of its buckets. Only public endpoints are received in partitions.
    """

    name: str
    subject: str
    handler: Handler
    operations: Mapping[str, str] = {}
    rejected: Callable[[str, str], bool] | None = None
    queue: str | None = None
    tenant: Callable[[str], str] | None = None
    tenant_of_body: Callable[[bytes], str] | None = None
    problems: bool = False
    partition_by: int | None = None
    public: bool = False

    def __post_init__(self) -> None:
        words = self.subject.split(".")
        if self.partition_by is not None and (
            ">" in words or not 1 <= self.partition_by <= words.count("*")
        ):
            raise UsageError(
                "partition_by is the number of a wildcard (*) of the subject, from 1.",
                subject=self.subject,
                partition_by=self.partition_by,
            )

    @property
    def subjects(self) -> list[str]:
        """Return the subjects of its requests, with the one that a mapping makes of it."""
        return [self.subject] if self.partition_by is None else [self.subject, f"{self.subject}.*"]

    @property
    def mapping(self) -> tuple[str, str]:
        """Return the subject mapping for the configuration of nats-server."""
        parts = self.subject.split("*")
        mapped = parts[0] + "".join(
            f"{{{{wildcard({number})}}}}{part}" for number, part in enumerate(parts[1:], 1)
        )
        return self.subject, f"{mapped}.{{{{partition({NATS_PARTITIONS},{self.partition_by})}}}}"


def partition_of(tenant: str) -> int:
    """Return the partition to which nats-server maps a tenant: FNV-1a, 32 bits, of its name."""
    hashed = 0x811C9DC5
    for byte in tenant.encode():
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed % NATS_PARTITIONS


class Body(Generic[T]):
    """Decodes the JSON of a request into a Struct.

    A required field is declared with `UNSET` as its default and named in `required`, so that a
    missing field is distinguished from an invalid one by type and not by the text of an error.
    `levels` is the depth at which the caller's own value starts: the body may be that much deeper
    than a document. An empty message is an empty object, as in `nats req SUBJECT ''`.
    """

    __slots__ = ("_decode", "_levels", "_type", "required")

    def __init__(self, type: type[T], *, required: tuple[str, ...] = (), levels: int = 1) -> None:
        self._type = type
        self._decode = msgspec.json.Decoder(type).decode
        self.required = required
        self._levels = levels

    def read(self, data: bytes) -> T:
        """Raises MalformedError, MissingFieldError, RecordError, LimitError or DocumentError."""
        check_request(data, envelope_levels=self._levels)
        try:
            body = self._decode(data or _EMPTY)
        except msgspec.ValidationError as error:
            rejected = rejected_in(self._type, data or _EMPTY)
            raise RecordError(
                "Invalid field in the request.", reason=str(error), **rejected
            ) from None
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError, RecursionError) as error:
            _raise_malformed(data, error)
        for name in self.required:
            if getattr(body, name) is UNSET:
                raise MissingFieldError(f"Missing required field: {name}")
        return body


def _raise_malformed(data: bytes, error: Exception) -> NoReturn:
    """Distinguish text that is not JSON from JSON with values that only Python accepts."""
    try:
        value = json.loads(data.decode(), parse_constant=_raise_not_finite)
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DocumentError("A text in the document contains a lone surrogate.") from None
    except (ValueError, RecursionError):
        raise MalformedError("The request is not JSON in UTF-8.", reason=str(error)) from None
    raise DocumentError("A number in the document is not finite.", reason=str(error))


def _raise_not_finite(name: str) -> NoReturn:
    raise DocumentError("A number in the document is not finite.", value=name)


PROBLEM_HEADER: Final = "Keyhouse-Problem"
"""The header of an error reply with the error's class, status, sentence and fields."""


class _ErrorReply(msgspec.Struct):
    success: bool
    error_code: str
    message: str


def error_headers(error: BaseException, *, problem: bool = False) -> dict[str, str]:
    """Return the headers by which clients of the micro protocol recognise an error: its code, and a
    number by the family of the error; and the whole `problem`, if the endpoint sends it."""
    if not isinstance(error, KeyhouseError):
        error = KeyhouseError(_UNEXPECTED)
    number = _NUMBERS.get(error.status, 400 if error.status < 500 else 500)
    headers = {_ERROR: error.code, ERROR_NUMBER_HEADER: str(number)}
    return headers | {PROBLEM_HEADER: _problem(error)} if problem else headers


def _problem(error: KeyhouseError) -> str:
    """Return the error's class, status, sentence and fields as ASCII JSON, as over HTTP: a client
    can raise it again."""
    fields = error.public().json_fields() if isinstance(error, _CALLERS_OWN) else {}
    problem = {"type": error_urn(error), "status": error.status, "detail": error.sentence}
    return json.dumps({**problem, "fields": fields})


def error_reply(error: BaseException) -> bytes:
    """Return the reply to a request that raised `error`.

    The caller's own errors are sent with their fields. Of errors on our side only the sentence is
    sent: fields may name files or servers, and are for the log. An unknown outcome has its own
    text: the engine's advice (retry with the batch id) does not apply to NATS clients.
    """
    if not isinstance(error, KeyhouseError):
        return _encode(_ErrorReply(False, KeyhouseError.code, _UNEXPECTED))
    if isinstance(error, UnknownOutcomeError):
        return _encode(_ErrorReply(False, error.code, _OUTCOME_UNKNOWN))
    message = str(error.public()) if isinstance(error, _CALLERS_OWN) else error.sentence
    text = message.encode("utf-8", "backslashreplace").decode()
    return _encode(_ErrorReply(False, error.code, text))
