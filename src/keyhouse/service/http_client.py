"""The HTTP side of typed clients and of commands that talk to a service. Needs `httpx`, of the
extra `client`."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

import httpx
import msgspec

from keyhouse.errors import (
    AccessError,
    CallerError,
    EngineError,
    KeyhouseError,
    RateError,
    RevisionError,
    ScopeError,
    TokenError,
    UnavailableError,
    UsageError,
)
from keyhouse.service.errors import ClientError, ErrorMap

__all__ = [
    "HTTP_ERRORS",
    "AbsentError",
    "ChangedError",
    "ExistsError",
    "HttpClient",
    "InvalidError",
    "ServiceError",
    "ServiceRequestError",
    "TooMuchError",
    "UnauthorizedError",
    "service_url",
    "tenant_of_token",
    "translated",
]


class ServiceRequestError(ClientError):
    """A request that the service rejected or failed, by its HTTP `status`."""

    local: ClassVar[type[KeyhouseError]] = AccessError


class InvalidError(ServiceRequestError):
    """The request is invalid: 400, 413, 415, 422."""

    statuses = (400, 413, 415, 422)
    local = CallerError


class UnauthorizedError(ServiceRequestError):
    """The token is missing, expired, rejected, or lacks the scope: 401, 403."""

    statuses = (401, 403)

    def to_local(self, **fields: Any) -> KeyhouseError:
        if self.status == ScopeError.status:
            return ScopeError("The service does not allow this.", reason=self.message)
        return TokenError("The service rejected the token.", reason=self.message)


class AbsentError(ServiceRequestError):
    """There is no such thing: 404."""

    statuses = (404,)


class ExistsError(ServiceRequestError):
    """A thing of this id exists: 409."""

    statuses = (409,)
    local = RevisionError


class ChangedError(ServiceRequestError):
    """The thing has another ETag than expected: 412. Read it again."""

    statuses = (412,)
    local = RevisionError


class TooMuchError(ServiceRequestError):
    """Too many requests, or the quota is used up: 429. `retry_after` is the number of seconds to
    wait."""

    statuses = (429,)
    local = RateError


class ServiceError(ServiceRequestError):
    """The service failed: 500 and above."""

    statuses = (500,)
    local = EngineError


HTTP_ERRORS: Final = ErrorMap(
    ServiceRequestError,
    InvalidError,
    UnauthorizedError,
    AbsentError,
    ExistsError,
    ChangedError,
    TooMuchError,
    ServiceError,
)


class HttpClient:
    """A synchronous client of one service, with its token. Errors are raised by `errors`; nothing
    is retried."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
        errors: ErrorMap[Any] = HTTP_ERRORS,
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._errors = errors
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, transport=transport
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return a successful response; raise the client's error for any other."""
        response = self._http.request(method, path, **options)
        if response.is_success:
            return response
        try:
            problem = msgspec.json.decode(response.content, type=dict[str, Any])
        except msgspec.MsgspecError:
            problem = {}
        nested = problem.get("error")
        if isinstance(nested, dict):  # the error format `nested`
            nested = {"detail": nested.get("message", ""), "fields": nested.get("details")} | nested
            problem = {**problem, **nested}
        elif isinstance(nested, str):  # an error format with the text as `error`
            problem = {"detail": nested, **problem}
        status, code = response.status_code, str(problem.get("code", ""))
        retry_after = response.headers.get("retry-after", "")
        raise self._errors.find(status=status)(
            str(problem.get("detail", "")) or "The service gave no reason.",
            code=code,
            status=status,
            fields=problem.get("fields"),
            retry_after=float(retry_after) if retry_after.isdigit() else None,
            request_id=str(problem.get("requestId", "")),
        )

    def items_of(self, path: str, member: str, params: Mapping[str, Any]) -> Iterator[Any]:
        """Iterate over the items of all pages of a route that takes and returns a cursor."""
        query = dict(params)
        while True:
            page = self.request("GET", path, params=query).json()
            yield from page[member]
            if "cursor" not in page:
                return
            query["cursor"] = page["cursor"]


def service_url(url: str, mount: str) -> str:
    """Return the URL of a system's API: below `mount`, where `keyhouse serve` has it, unless the
    URL has a path."""
    if not url.startswith(("http://", "https://")):
        raise UsageError("This service is reached over HTTP: --service http://host:8080.")
    return url if urlsplit(url).path.strip("/") else url.rstrip("/") + mount


def tenant_of_token(token: str, claims: Sequence[str], *, system: str) -> str:
    """Return the tenant that a token names in the first of these claims that it has.

    The signature is not verified: the service does that. The tenant is read so that a command never
    shows another tenant's data in place of the one asked for.
    """
    try:
        body = token.split(".")[1]
        given = msgspec.json.decode(
            base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)), type=dict[str, Any]
        )
    except (IndexError, binascii.Error, msgspec.MsgspecError, UnicodeDecodeError, ValueError):
        raise UsageError(f"Invalid token: `keyhouse token {system}` makes one.") from None
    tenant = next((str(given[name]) for name in claims if name in given), None)
    if tenant is None:
        raise UsageError("The token names no tenant.", claims=list(claims))
    return tenant


@contextmanager
def translated(unanswered: type[EngineError] = UnavailableError) -> Iterator[None]:
    """Raise Keyhouse's own errors. `unanswered` is raised if the response is missing or is not the
    service's."""
    try:
        yield
    except ClientError as error:
        raise error.to_local() from None
    except (httpx.ConnectError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise UnavailableError("The service cannot be reached.", reason=str(error)) from None
    except (httpx.HTTPError, msgspec.MsgspecError, ValueError, KeyError) as error:
        raise unanswered(
            "The response is not from this service, or it was cut off.",
            reason=str(error) or type(error).__name__,
        ) from None
