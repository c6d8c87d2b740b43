"""The app: the routes of every service below its prefix, as one ASGI application.

One function handles each request from its headers to its last byte, so that every response has its
id, headers, log line and metrics, whatever failed.
"""

import asyncio
import itertools
import secrets
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from time import perf_counter
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from starlette.responses import StreamingResponse

from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import DeclarationError, KeyhouseError, NotFoundError, PreparingError
from keyhouse.http.content_negotiation import prefers_html
from keyhouse.http.cross_origin import Cors
from keyhouse.http.endpoint import (
    DisconnectedError,
    HttpEndpoint,
    HttpRequest,
    OptionsEndpoint,
    Section,
)
from keyhouse.http.errors import (
    PROBLEM,
    DrainingError,
    ErrorFormat,
    MethodError,
    RepeatedLines,
    error_headers,
    shown_error,
)
from keyhouse.http.event_stream import EventBody, HeldPlaces, OpenStreams, TenantStreams
from keyhouse.http.front_pages import has_page, landing_route, service_route
from keyhouse.http.limits import HTTP_PLACES, HTTP_TENANT_PLACES, HTTP_TENANT_WAITING_MAX
from keyhouse.http.metrics import HttpMetrics
from keyhouse.http.response import (
    BYTES_TYPES,
    NO_BODY_STATUSES,
    AbortedError,
    EncodedResponse,
    ResponseSender,
)
from keyhouse.http.router import ErrorPage, KnownPaths, Route, Router
from keyhouse.http.settings import HttpSettings
from keyhouse.http.static import asset_routes, docs_routes, redirect_route
from keyhouse.scheduling.turns import Places

_UNMATCHED = "unmatched"
_PATH_CHARS_MAX = 200
_LOGGED_FROM = {"all": 0, "failed": 500, "off": 1_000}
"""The lowest status that is logged, by the setting `access_log`."""
_EXPECTED = (DrainingError, PreparingError)
"""Errors above 499 that are expected: the shutdown or the preparation is logged, once."""


def _places(workers: int = 1) -> Places:
    """Return the places of one service in one of several workers, which divide them. A streamed
    response has left its place: what it holds is limited by bytes."""
    limits = (HTTP_PLACES, HTTP_TENANT_PLACES, HTTP_TENANT_WAITING_MAX)
    return Places(*(max(1, limit // workers) for limit in limits))


def make_app(
    sections: Sequence[Section],
    *,
    settings: HttpSettings | None = None,
    registry: CollectorRegistry | None = None,
    routes: Sequence[Route] = (),
    alone: bool = False,
    workers: int = 1,
    slots: Callable[[str], HeldPlaces | None] = lambda kind: None,
) -> "App":
    """Return an ASGI application with each service below `/<name>`; `routes` have no prefix.

    `alone` puts a single service at the root, for mounting in another server. Its limits are those
    of `workers` processes, which count places of a kind in `slots`.
    """
    registry = registry or CollectorRegistry()
    return App(sections, settings or HttpSettings(), registry, routes, alone, workers, slots)


class App:
    """An ASGI application. Call `drain` before the server stops."""

    def __init__(
        self,
        sections: Sequence[Section],
        settings: HttpSettings,
        registry: CollectorRegistry,
        routes: Sequence[Route],
        alone: bool,
        workers: int,
        slots: Callable[[str], HeldPlaces | None],
    ) -> None:
        if alone and len(sections) != 1:
            raise DeclarationError(
                "Only a single service can be mounted at the root.",
                parts=[section.name for section in sections],
            )
        self.settings = settings
        self.metrics = HttpMetrics(registry)
        self._router: Router[HttpEndpoint] = Router()
        self._default_format = sections[0].error_format if alone else PROBLEM
        self._formats = {section.name.encode(): section.error_format for section in sections}
        self._alone = alone
        self._error_pages: dict[bytes, ErrorPage] = {}
        self._api_paths = {
            (b"" if alone else section.name.encode(), route.path.split("/")[1].encode())
            for section in sections
            for route in section.routes
            if route.listed
        }
        self._known_paths = (
            KnownPaths(
                ("" if alone else f"/{section.name}") + route.path
                for section in sections
                for route in section.routes
                if route.listed
            )
            if settings.docs
            else None
        )
        documents = [*docs_routes(sections, alone=alone)] if settings.docs else []
        if documents and not alone:
            documents.append(landing_route(sections, routes))
        for route in (*routes, *asset_routes(alone=alone), *documents):
            self._add(route, None, "")
        self._front_pages: dict[bytes, HttpEndpoint] = {}
        if documents and not alone:
            for section in sections:
                if not has_page(section):
                    path = f"/{section.name}"
                    self._add_front_page(service_route(section, sections))
                    self._add_front_page(redirect_route(path, f"{path}/", "To its page."))
        for section in sections:
            prefix = "" if alone else f"/{section.name}"
            streams = TenantStreams(settings.tenant_streams_max, slots(f"streams:{section.name}"))
            shares = _places(workers), streams
            for route in section.routes:
                self._add(route, section, prefix, shares)
                if route.path == "/" and route.method == "GET":
                    if not alone:
                        self._add(redirect_route(prefix, f"{prefix}/", "To its page."), None, "")
                    if route.error_page is not None:
                        self._error_pages[prefix[1:].encode()] = route.error_page
        self._log = structlog.get_logger("keyhouse.http")
        self._process_id = secrets.token_hex(6)
        self._numbers = itertools.count(1)
        self._repeated = RepeatedLines()
        self._logged_from = _LOGGED_FROM[settings.access_log]
        self._slow_seconds = settings.slow_seconds
        self._idle = asyncio.Event()
        self._streams = OpenStreams()
        self._draining = False
        self._cors = (
            Cors(self._serve, settings, self._scope_format) if settings.cors_origins else None
        )
        self._entry: Any = self._cors or self._serve

    def _add(
        self,
        route: Route,
        section: Section | None,
        prefix: str,
        shares: tuple[Places, TenantStreams] | None = None,
    ) -> None:
        places, streams = shares or (_places(), TenantStreams())
        endpoint = HttpEndpoint(route, section, prefix, self.settings, places, streams)
        self._router.add(route.method, endpoint.template, endpoint)

    def _add_front_page(self, route: Route) -> None:
        """Add a page for browsers at a path that has no route for programs."""
        endpoint = HttpEndpoint(route, None, "", self.settings, _places(), TenantStreams())
        self._front_pages[route.path.encode()] = endpoint

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._entry(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def drain(self) -> None:
        """Respond 503 to new requests; return when those in flight end, or after the timeout."""
        self._draining = True
        self.end_streams()
        if self.metrics.in_flight or self._streams:
            self._idle.clear()
            try:
                async with asyncio.timeout(self.settings.drain_seconds):
                    await self._idle.wait()
            except TimeoutError:
                self._log.warning("requests aborted", count=self.metrics.in_flight)

    def end_streams(self) -> None:
        """End all event streams: shutdown need not wait for them."""
        self._streams.end()

    def reject(
        self, error: KeyhouseError, raw_path: bytes = b"", headers: HeaderPairs = ()
    ) -> EncodedResponse:
        """Return the response to a request that the server rejects before it reaches a route.

        `raw_path` and `headers` are what the server has read of it.
        """
        self.metrics.reject(error.status)
        id = secrets.token_hex(8)
        self._log.debug("connection rejected", id=id, error=error.sentence)
        response = self._format(raw_path).response(error, id)
        response.headers = response.all_headers(id)
        if self._cors is not None:
            response.headers += self._cors.headers_for(dict(headers))
        return response

    async def _lifespan(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._draining = False  # an app may be started again
                self._streams.restart()
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.drain()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        start = perf_counter()
        request = HttpRequest(scope, receive, f"{self._process_id}-{next(self._numbers):x}")
        metrics = self.metrics
        metrics.in_flight += 1
        endpoint = None
        try:
            try:
                endpoint, values = self._route(request)
                response = await endpoint.run(request, values)
            except DisconnectedError:
                return
            except Exception as error:
                response = await self._error_response(error, request, endpoint)
            status, seconds = response.status, None
            if isinstance(response.body, BYTES_TYPES):
                if isinstance(send, ResponseSender):
                    await send.send_response(request.id, response)
                else:
                    await _send_whole(request, response, send)
            elif type(response.body) is EventBody:
                seconds = perf_counter() - start
                await self._send_events(request, response, receive, send)
            else:
                await self._stream(request, response, scope, receive, send)
            if seconds is None:
                seconds = perf_counter() - start
            template = _UNMATCHED if endpoint is None else endpoint.template
            metrics.count(request.method, template, status, seconds)
            if seconds >= self._slow_seconds or status >= self._logged_from:
                self._log_access(request, status, seconds)
        finally:
            metrics.in_flight -= 1
            if self._draining and not metrics.in_flight and not self._streams:
                self._idle.set()

    def _route(self, request: HttpRequest) -> tuple[HttpEndpoint | OptionsEndpoint, Sequence[str]]:
        """Return the endpoint of the request, and the values of its path's fields."""
        if self._draining:
            raise DrainingError("The service is shutting down: try again.")
        match = self._router.find(request.raw_path)
        if match is None:
            page = self._front_pages.get(request.raw_path)
            if (
                page is None
                or request.method not in ("GET", "HEAD")
                or not prefers_html(request.header(b"accept"))
            ):
                raise self._no_route(request.raw_path)
            return page, ()
        by_method, values = match
        method = request.method
        endpoint = by_method.get("GET" if method == "HEAD" else method)
        if endpoint is not None:
            return endpoint, values
        options = OptionsEndpoint(by_method)
        if method != "OPTIONS":
            raise MethodError("This path does not support the method.", allow=options.allow)
        return options, values

    # Errors

    def _no_route(self, raw_path: bytes) -> NotFoundError:
        """Return the error of a path that no route has. Where the app shows its documentation, it
        says which are known, only in problem documents."""
        fields: dict[str, object] = {}
        if self._known_paths is not None and self._format(raw_path) is PROBLEM:
            fields = self._known_paths.describe(raw_path)
            service = raw_path[1:].partition(b"/")[0]
            if service in self._formats and not self._alone:
                fields["docs"] = f"/{service.decode()}/docs"
        return NotFoundError("No route has this path.", **fields)

    def _format(self, raw_path: bytes) -> ErrorFormat:
        """Return the error format of the service that the path is below."""
        return self._formats.get(raw_path[1:].partition(b"/")[0], self._default_format)

    def _scope_format(self, scope: Any) -> ErrorFormat:
        return self._format(HttpRequest(scope, None, "").raw_path)

    async def _error_response(
        self,
        error: Exception,
        request: HttpRequest,
        endpoint: HttpEndpoint | OptionsEndpoint | None,
    ) -> EncodedResponse:
        if not isinstance(error, KeyhouseError):
            self._log.error(
                "unhandled exception", id=request.id, trace=_trace(error), **_logged(request)
            )
        elif error.status >= 500 and not isinstance(error, _EXPECTED):
            more = self._repeated.fields((type(error), error.sentence))
            if more is not None:
                fields = _logged(request) | more
                self._log.error("request failed", id=request.id, error=str(error), **fields)
        if endpoint is None:
            if (error_page := self._error_page(request, error)) is not None:
                return await _page_response(error_page, error, request, "")
            return self._format(request.raw_path).response(error, request.id)
        if isinstance(endpoint, HttpEndpoint) and endpoint.route.error_page is not None:
            return await _page_response(endpoint.route.error_page, error, request, endpoint.realm)
        return endpoint.error_format.response(error, request.id, endpoint.realm)

    def _error_page(self, request: HttpRequest, error: Exception) -> ErrorPage | None:
        """Return the error page for a browser whose request has no route: that of the page at this
        path, if it has other methods; else, outside of the API, that of the service's page `/`."""
        if not prefers_html(request.header(b"accept")):
            return None
        if isinstance(error, MethodError):
            by_method, _ = self._router.find(request.raw_path) or ({}, ())
            pages = (endpoint.route.error_page for endpoint in by_method.values())
            return next(filter(None, pages), None)
        service, _, path = request.raw_path[1:].partition(b"/")
        if self._alone:
            service, path = b"", request.raw_path[1:]
        is_api = (service, path.partition(b"/")[0]) in self._api_paths
        return None if is_api else self._error_pages.get(service)

    async def _stream(
        self,
        request: HttpRequest,
        response: EncodedResponse,
        scope: Any,
        receive: Any,
        send: Any,
    ) -> None:
        """Send a body in pieces. HEAD produces none of them, so it has no Content-Length."""
        start = {
            "type": "http.response.start",
            "status": response.status,
            "headers": (headers := response.all_headers(request.id)),
        }
        if request.method == "HEAD":
            await send(start)
            await send({"type": "http.response.body", "body": b""})
            return
        streaming = StreamingResponse(yield_to_loop(response.body), response.status)
        streaming.raw_headers = headers
        try:
            await streaming(scope, receive, send)
        except Exception as error:  # half of it is sent: the connection is closed
            self._log.error(
                "response aborted", id=request.id, trace=_trace(error), **_logged(request)
            )
            raise AbortedError from error

    async def _send_events(
        self, request: HttpRequest, response: EncodedResponse, receive: Any, send: Any
    ) -> None:
        """Send an event stream, which is not a request in flight."""
        start = {
            "type": "http.response.start",
            "status": response.status,
            "headers": response.all_headers(request.id),
        }
        metrics = self.metrics
        metrics.in_flight -= 1
        metrics.event_streams += 1
        try:
            await self._streams.send(response.body, start, receive, send)
        finally:
            metrics.in_flight += 1
            metrics.event_streams -= 1

    def _log_access(self, request: HttpRequest, status: int, seconds: float) -> None:
        """Log a request. Slow ones are logged whatever the settings; of those that failed, one a
        second for each status, unless all requests are logged."""
        slow = seconds >= self._slow_seconds
        more: dict[str, int] | None = {}
        if status >= 500 and self._logged_from:
            more = self._repeated.fields(status)
        if more is None:
            return
        log = self._log.warning if slow else self._log.info
        log(
            "slow request" if slow else "request",
            id=request.id,
            status=status,
            milliseconds=round(seconds * 1_000, 1),
            **_logged(request) | more,
        )


async def _send_whole(request: HttpRequest, response: EncodedResponse, send: Any) -> None:
    headers, body = response.all_headers(request.id), response.body
    if response.status not in NO_BODY_STATUSES:
        headers.append((b"content-length", b"%d" % len(body)))
    if request.method == "HEAD":
        body = b""
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _page_response(
    error_page: ErrorPage, error: Exception, request: HttpRequest, realm: str
) -> EncodedResponse:
    shown = shown_error(error)
    page = error_page(shown, request.root, _location(request))
    response = await page.respond(request.method, request.headers)
    if shown.status != 401:  # the page leads to the login
        known = error if isinstance(error, KeyhouseError) else shown
        response.headers += error_headers(known, realm)
    return response


async def yield_to_loop(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Let other tasks run between two pieces, and notice a client that has disconnected.

    A stream that never waits, as from a file, would otherwise run to its end for nobody.
    """
    try:
        async for piece in pieces:
            yield piece
            await asyncio.sleep(0)
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()  # now, and not when it is garbage collected


def _location(request: HttpRequest) -> str:
    """Return the path and query of a page; "" for a form, which cannot be sent again."""
    if request.method != "GET":
        return ""
    query = b"?" + request.query if request.query else b""
    return (request.raw_path + query).decode("latin-1")


def _trace(error: Exception) -> str:
    """Format the traceback here: a logger's may show variables, and so tokens."""
    return "".join(traceback.format_exception(error))


def _logged(request: HttpRequest) -> dict[str, Any]:
    """Return the fields of a log line. Never the query, which may be private."""
    return {"method": request.method, "path": request.raw_path.decode("latin-1")[:_PATH_CHARS_MAX]}
