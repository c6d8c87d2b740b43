"""The HTTP side of typed clients and of commands that talk to a service. Needs `httpx`, of the
extra `client`."""

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx
import msgspec

from keyhouse.advice.http_arguments import TENANT_CLAIMS, authorization
from keyhouse.errors import EngineError, KeyhouseError, UnavailableError, UsageError
from keyhouse.remote_store.problems import error_of

__all__ = ["HttpClient", "tenant_of_token", "translated"]


class HttpClient:
    """A synchronous client of one service, with its token. A rejected request raises the error that
    the service raised; nothing is retried."""

    def __init__(
        self,
        url: str,
        *,
        token: str,
        timeout: float = 10.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        headers = {"Authorization": authorization(token)}
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

    def use_token(self, token: str) -> None:
        """Send this token from now on."""
        self._http.headers["Authorization"] = authorization(token)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return a successful response; raise the service's error for any other."""
        response = self._http.request(method, path, **options)
        if response.is_success:
            return response
        raise self.error_of(response)

    def error_of(self, response: httpx.Response) -> KeyhouseError:
        """Return the error of an unsuccessful response."""
        return error_of(response.status_code, _problem(response.content))

    def items_of(self, path: str, member: str, params: Mapping[str, Any]) -> Iterator[Any]:
        """Iterate over the items of all pages of a route that takes and returns a cursor."""
        query = dict(params)
        while True:
            page = self.request("GET", path, params=query).json()
            yield from page[member]
            if "cursor" not in page:
                return
            query["cursor"] = page["cursor"]


def tenant_of_token(token: str, claims: Sequence[str] = TENANT_CLAIMS, *, system: str) -> str:
    """Return the tenant that a token names in the first of these claims that it has.

    The signature is not verified: the service does that. The tenant is read so that a command never
    shows another tenant's data in place of the one asked for.
    """
    authorization(token)
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
    """Raise Keyhouse's own errors, for a command. `unanswered` is raised if the response is missing
    or is not the service's."""
    try:
        yield
    except (httpx.ConnectError, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise UnavailableError("The service cannot be reached.", reason=str(error)) from None
    except (httpx.HTTPError, msgspec.MsgspecError, ValueError, KeyError) as error:
        raise unanswered(
            "The response is not from this service, or it was cut off.",
            reason=str(error) or type(error).__name__,
        ) from None


def _problem(content: bytes) -> dict[str, Any]:
    """Return the members of an error in any of the formats that services have."""
    try:
        problem = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}
    error = problem.get("error")
    if isinstance(error, dict):  # the error format `nested`
        return {**error, "detail": error.get("message"), "fields": error.get("details")}
    return problem if error is None else {"detail": error, **problem}
