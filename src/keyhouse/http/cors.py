"""Pages of other sites (CORS): Starlette says who may ask, and what it answers by itself looks like every other answer."""

import secrets
from typing import Any

import msgspec
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from keyhouse.errors import AccessError
from keyhouse.http.problem import GUARDS, PROBLEM, problem
from keyhouse.http.settings import HttpSettings


class Cors(CORSMiddleware):
    """Answers a browser that asks before it sends, and tells it which answers a page may read."""

    def __init__(self, app: Any, settings: HttpSettings) -> None:
        super().__init__(
            app,
            allow_origins=settings.origins,
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=[
                "Authorization",
                "Content-Type",
                "If-Match",
                "If-None-Match",
                "X-Request-Id",
            ],
            allow_credentials=settings.credentials,
            expose_headers=["ETag", "Location", "Retry-After", "X-Request-Id"],
        )

    def preflight_response(self, request_headers: Headers) -> Response:
        response = super().preflight_response(request_headers)
        id = secrets.token_hex(8)
        if response.status_code >= 400:
            refused = AccessError(
                "A page of this site may not ask this: name its origin in http.origins."
            )
            response.status_code = refused.status
            response.body = msgspec.json.encode(problem(refused, id))
            response.headers["content-type"] = PROBLEM.decode()
            response.headers["content-length"] = str(len(response.body))
        response.raw_headers += [*GUARDS, (b"x-request-id", id.encode())]
        return response
