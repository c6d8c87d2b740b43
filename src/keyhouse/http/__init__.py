"""The HTTP layer: a typed route table on ASGI, with msgspec bodies, error formats and OpenAPI.

It knows no system and no store: it calls the handlers of routes.
"""

from keyhouse.http.app import App, make_app
from keyhouse.http.client_address import ClientAddress, canonical_address
from keyhouse.http.endpoint import Section
from keyhouse.http.errors import NESTED, PROBLEM, ErrorFormat, Problem
from keyhouse.http.event_stream import EventSource, EventStream
from keyhouse.http.file_response import FileResponse, FileRoot
from keyhouse.http.forms import UploadedFile
from keyhouse.http.html import HtmlPage, Redirect, Templates
from keyhouse.http.preconditions import Conditions, etag
from keyhouse.http.read_meter import report_read
from keyhouse.http.response import (
    Response,
    ResponseSpec,
    Stream,
    delete_cookie,
    json_array,
    page_response,
    retry_after,
    set_cookie,
)
from keyhouse.http.router import Route, RouteGroup
from keyhouse.http.settings import HttpSettings
from keyhouse.http.signature import decode_optional
from keyhouse.http.static import file_route, page_route, redirect_route

__all__ = [
    "NESTED",
    "PROBLEM",
    "App",
    "ClientAddress",
    "Conditions",
    "ErrorFormat",
    "EventSource",
    "EventStream",
    "FileResponse",
    "FileRoot",
    "HtmlPage",
    "HttpSettings",
    "Problem",
    "Redirect",
    "Response",
    "ResponseSpec",
    "Route",
    "RouteGroup",
    "Section",
    "Stream",
    "Templates",
    "UploadedFile",
    "canonical_address",
    "decode_optional",
    "delete_cookie",
    "etag",
    "file_route",
    "json_array",
    "make_app",
    "page_response",
    "page_route",
    "redirect_route",
    "report_read",
    "retry_after",
    "set_cookie",
]
