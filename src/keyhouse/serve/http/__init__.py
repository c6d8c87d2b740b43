"""The HTTP face: a typed route table on Starlette, with msgspec bodies, problem documents and an OpenAPI document.

It knows no system and no store: a route's handler is all it calls.
"""

from keyhouse.serve.http.app import App, make_app
from keyhouse.serve.http.conditions import Conditions, etag
from keyhouse.serve.http.endpoint import Section
from keyhouse.serve.http.pages import file_route, page_route
from keyhouse.serve.http.problem import Problem
from keyhouse.serve.http.reply import Reply, Returns, Stream
from keyhouse.serve.http.route import Route
from keyhouse.serve.http.settings import HttpSettings

__all__ = [
    "App",
    "Conditions",
    "HttpSettings",
    "Problem",
    "Reply",
    "Returns",
    "Route",
    "Section",
    "Stream",
    "etag",
    "file_route",
    "make_app",
    "page_route",
]
