"""The HTTP face: a typed route table on Starlette, with msgspec bodies, problem documents and an OpenAPI document.

It knows no system and no store: a route's handler is all it calls.
"""

from keyhouse.http.app import App, make_app
from keyhouse.http.endpoint import Section
from keyhouse.http.preconditions import Conditions, etag
from keyhouse.http.problem import Problem
from keyhouse.http.response import Response, ResponseSpec, Stream
from keyhouse.http.route import Route
from keyhouse.http.settings import HttpSettings
from keyhouse.http.static_files import file_route, page_route

__all__ = [
    "App",
    "Conditions",
    "HttpSettings",
    "Problem",
    "Response",
    "ResponseSpec",
    "Route",
    "Section",
    "Stream",
    "etag",
    "file_route",
    "make_app",
    "page_route",
]
