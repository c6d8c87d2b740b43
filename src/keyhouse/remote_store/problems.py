"""Errors of a service, raised as Keyhouse's own: by a remote store, typed clients and commands."""

import re
from typing import Any, Final

from keyhouse import errors
from keyhouse.errors import (
    AccessError,
    CallerError,
    ConflictError,
    DataError,
    EngineError,
    KeyhouseError,
    LimitError,
    NotFoundError,
    RateError,
    RecordError,
    RevisionError,
    ScopeError,
    TokenError,
    UnknownOutcomeError,
    UnreadableError,
)

__all__ = ["error_of", "shown_url", "unreadable_error"]

_BY_TYPE: Final[dict[str, type[KeyhouseError]]] = {
    each.type: each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, KeyhouseError)
}

_BY_CODE: Final[dict[tuple[str, int | None], type[KeyhouseError]]] = {
    key: each
    for each in reversed(_BY_TYPE.values())  # of several, the first is the most general
    for key in ((each.code, each.status), (each.code, None))
}
"""Classes by code and status; by code alone, for a reply over NATS, which may have no status."""

_URN: Final = re.compile(r"urn:keyhouse:error:([a-z-]{1,80})")

_BY_STATUS: Final[dict[int, type[KeyhouseError]]] = {
    400: CallerError,
    401: TokenError,
    403: ScopeError,
    404: NotFoundError,
    409: ConflictError,
    412: RevisionError,
    413: LimitError,
    422: RecordError,
    429: RateError,
    504: UnknownOutcomeError,
}


def error_of(status: int, problem: Any) -> KeyhouseError:
    """Return the error of a problem document: the class that the service raised, where Keyhouse has
    it, else the nearest one of its code and status, with the `type` and `code` that the service
    named. Without a class, KeyhouseError itself is that of an unhandled exception.

    An error on the service's side has no fields: the id of its request finds it in the log.
    """
    if not isinstance(problem, dict):
        problem = {}
    match = _URN.fullmatch(str(problem.get("type")))
    name, code = match[1] if match else "", str(problem.get("code") or "")
    kind = (
        _BY_TYPE.get(name)
        or _BY_CODE.get((code, status))
        or _BY_CODE.get((code, None))
        or _BY_STATUS.get(status)
        or _family(status)
    )
    fields = problem.get("fields")
    if not isinstance(fields, dict):
        fields = {}
    if not fields and status >= 500 and "requestId" in problem:
        fields = {"request_id": problem["requestId"]}
    sentence = str(problem.get("detail") or "The service gave no reason.")
    error = kind(sentence, **{str(name): value for name, value in fields.items()})
    error.type, error.code = name or kind.type, code or kind.code
    return error


def unreadable_error(record: str, item: dict[str, Any]) -> DataError:
    """Return the error of a row that a service has left out of an answer."""
    kind = type(error_of(500, item))
    if not issubclass(kind, DataError):
        kind = UnreadableError
    return kind(str(item.get("detail")), record=record, key=item["key"])


def shown_url(url: str) -> str:
    """Return the URL of a service, or several with commas, without the credentials in it."""
    servers = []
    for each in url.split(","):
        scheme, separator, rest = each.rpartition("://")
        servers.append(scheme + separator + rest.rpartition("@")[2])
    return ",".join(servers)


def _family(status: int) -> type[KeyhouseError]:
    if status >= 500:
        return EngineError
    return CallerError if status < 500 and status != 451 else AccessError
