"""Requests from pages of other sites: CORS (which pages may call) and CSRF (forged requests).

Starlette implements CORS; its rejections are rendered in the service's error format here.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Any

from starlette.datastructures import Headers as StarletteHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response as StarletteResponse

from keyhouse.errors import AccessError
from keyhouse.http.errors import ErrorFormat
from keyhouse.http.response import SECURITY_HEADERS, EncodedResponse, Headers
from keyhouse.http.settings import HttpSettings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class Cors(CORSMiddleware):
    """Answers preflight requests, and adds CORS headers to every response.

    `error_format` returns the format for the path of an ASGI scope.
    """

    def __init__(
        self, app: Any, settings: HttpSettings, error_format: Callable[[Any], ErrorFormat]
    ) -> None:
        super().__init__(
            app,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=[
                "Authorization",
                "Content-Type",
                "Idempotency-Key",
                "If-Match",
                "If-None-Match",
                "Keyhouse-Space",
                "Last-Event-ID",
                "X-Request-Id",
            ],
            allow_credentials=settings.credentials,
            expose_headers=["ETag", "Location", "Retry-After", "X-Request-Id"],
        )
        self._error_format = error_format

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = StarletteHeaders(scope=scope)
        if (
            scope["method"] == "OPTIONS"
            and "origin" in headers
            and "access-control-request-method" in headers
        ):
            response = self._preflight(headers, self._error_format(scope))
            await response(scope, receive, send)
        else:
            await self.simple_response(scope, receive, send, request_headers=headers)

    def headers_for(self, sent: Mapping[bytes, bytes]) -> Headers:
        """Return the CORS headers of a response that the app does not send itself."""
        origin = sent.get(b"origin", b"").decode("latin-1")
        if not origin or not self.is_allowed_origin(origin):
            return []
        headers = {"Access-Control-Allow-Origin": origin, "Vary": "Origin"} | self.simple_headers
        return [(name.lower().encode(), text.encode("latin-1")) for name, text in headers.items()]

    def _preflight(self, sent: StarletteHeaders, error_format: ErrorFormat) -> StarletteResponse:
        response = self.preflight_response(sent)
        id = secrets.token_hex(8)
        if response.status_code >= 400:
            rejected: EncodedResponse = error_format.response(
                AccessError(
                    "Pages of this origin may not send this request: allow it with --cors, or"
                    " http.cors_origins."
                ),
                id,
            )
            assert isinstance(rejected.body, bytes)
            response.status_code = rejected.status
            response.body = rejected.body
            response.headers["content-type"] = error_format.media_type
            response.headers["content-length"] = str(len(rejected.body))
        response.raw_headers += [*SECURITY_HEADERS, (b"x-request-id", id.encode())]
        return response


def check_csrf(method: str, sent: Mapping[bytes, bytes], allowed: frozenset[str]) -> None:
    """Raise AccessError for a write with a cookie that a page of a foreign origin sent. `allowed`
    are the origins that may send cookies.

    Browsers set `Sec-Fetch-Site` and `Origin`, and a page cannot change either. A request with
    neither comes from no current browser, and so carries no cookie that its sender does not own.
    """
    if method in SAFE_METHODS:
        return
    origin = sent.get(b"origin")
    if origin is not None and origin.decode("latin-1") in allowed:
        return
    site = sent.get(b"sec-fetch-site")
    if site is not None:
        is_same_origin = site in (b"same-origin", b"none")
    else:
        is_same_origin = origin is None or origin.partition(b"://")[2] == sent.get(b"host")
    if not is_same_origin:
        raise AccessError(
            "A page of another site sent this with a cookie: use a bearer token, or allow its "
            "origin."
        )
