"""The app: every system's routes below its prefix, as one ASGI application for any server.

One function sees each request from its first header to its last byte, so that every answer has its id, its headers, its
line in the log and its place in the metrics, whatever went wrong.
"""

import asyncio
import itertools
import secrets
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from time import perf_counter
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from starlette.responses import StreamingResponse

from keyhouse.errors import DeclarationError, KeyhouseError, NotFoundError
from keyhouse.http.cors import Cors
from keyhouse.http.docs import docs_routes
from keyhouse.http.endpoint import Answer, Endpoint, Options, Section, encode
from keyhouse.http.metrics import HttpMetrics
from keyhouse.http.problem import (
    GUARDS,
    PROBLEM,
    DrainingError,
    MethodError,
    problem,
    problem_headers,
)
from keyhouse.http.request import GoneError, Request
from keyhouse.http.route import Route
from keyhouse.http.router import Router
from keyhouse.http.settings import HttpSettings
from keyhouse.http.static_files import redirect

_UNMATCHED = "unmatched"
_PATH_CHARS_MAX = 200
_LOGGED_FROM = {"all": 0, "failed": 500, "off": 1_000}
"""The least status that gets a line in the log, by the setting `access_log`."""


def make_app(
    sections: Sequence[Section],
    *,
    settings: HttpSettings | None = None,
    registry: CollectorRegistry | None = None,
    routes: Sequence[Route] = (),
    alone: bool = False,
) -> "App":
    """An ASGI application of the parts of systems, each below `/<name>`; `routes` stand beside them, without a prefix.

    `alone` is for one part in somebody's own server: it stands at the root, and they mount it where they like.
    """
    return App(sections, settings or HttpSettings(), registry or CollectorRegistry(), routes, alone)


class App:
    """An ASGI application. `drain` before the server is stopped lets what has begun end, and takes nothing new."""

    def __init__(
        self,
        sections: Sequence[Section],
        settings: HttpSettings,
        registry: CollectorRegistry,
        routes: Sequence[Route],
        alone: bool,
    ) -> None:
        if alone and len(sections) != 1:
            raise DeclarationError(
                "Only one part can stand alone.", parts=[section.name for section in sections]
            )
        self.settings = settings
        self.metrics = HttpMetrics(registry)
        self._table: Router[Endpoint] = Router()
        shown = docs_routes(sections, alone=alone) if settings.docs else ()
        for route in (*routes, *shown):
            self._add(route, None, "")
        for section in sections:
            for route in section.routes:
                self._add(route, section, "" if alone else f"/{section.name}")
                if route.path == "/" and not alone:
                    self._add(
                        redirect(f"/{section.name}", f"/{section.name}/", "To its page."),
                        None,
                        "",
                    )
        self._log = structlog.get_logger("keyhouse.http")
        process = secrets.token_hex(6)
        self._ids = (f"{process}-{number:x}" for number in itertools.count(1))
        self._logged_from = _LOGGED_FROM[settings.access_log]
        self._slow_seconds = settings.slow_seconds
        self._idle = asyncio.Event()
        self._draining = False
        self._entry: Any = self._serve if not settings.origins else Cors(self._serve, settings)

    def _add(self, route: Route, section: Section | None, prefix: str) -> None:
        endpoint = Endpoint(route, section, prefix, self.settings)
        self._table.add(route.method, endpoint.template, endpoint)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await self._entry(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def drain(self) -> None:
        """Answer 503 to what is new, and return when what had begun is answered, or the time for it is over."""
        self._draining = True
        if self.metrics.in_flight:
            self._idle.clear()
            try:
                async with asyncio.timeout(self.settings.drain_seconds):
                    await self._idle.wait()
            except TimeoutError:
                self._log.warning("requests were cut off", count=self.metrics.in_flight)

    async def _live(self, receive: Any, send: Any) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._draining = False  # an app may be started again
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.drain()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        start = perf_counter()
        request = Request(scope, receive, next(self._ids))
        metrics = self.metrics
        metrics.in_flight += 1
        endpoint = None
        try:
            try:
                endpoint, values = self._found(request)
                answer = await endpoint.run(request, values)
            except GoneError:
                return
            except Exception as error:
                answer = self._refusal(error, request)
            headers, body, status = answer.headers, answer.body, answer.status
            headers += (*GUARDS, (b"x-request-id", request.id.encode()))
            if type(body) is not bytes:
                await self._stream(request, answer, scope, receive, send)
            else:
                if status != 204 and status != 304:
                    headers.append((b"content-length", b"%d" % len(body)))
                await send({"type": "http.response.start", "status": status, "headers": headers})
                await send(
                    {
                        "type": "http.response.body",
                        "body": b"" if request.method == "HEAD" else body,
                    }
                )
            seconds = perf_counter() - start
            metrics.count(
                request.method,
                _UNMATCHED if endpoint is None else endpoint.template,
                status,
                seconds,
            )
            if seconds >= self._slow_seconds or status >= self._logged_from:
                self._say(request, status, seconds)
        finally:
            metrics.in_flight -= 1
            if self._draining and not metrics.in_flight:
                self._idle.set()

    def _found(self, request: Request) -> tuple[Endpoint | Options, Sequence[str]]:
        """What answers the request, and the values of its path's fields."""
        if self._draining:
            raise DrainingError("The service is shutting down: try again.")
        found = self._table.find(request.raw_path)
        if found is None:
            raise NotFoundError("There is nothing at this address.")
        by_method, values = found
        method = request.method
        endpoint = by_method.get("GET" if method == "HEAD" else method)
        if endpoint is not None:
            return endpoint, values
        options = Options(by_method)
        if method != "OPTIONS":
            raise MethodError("This address does not take this method.", allow=options.allow)
        return options, values

    def _refusal(self, error: Exception, request: Request) -> Answer:
        if not isinstance(error, KeyhouseError):
            self._log.error(
                "an error of ours", id=request.id, trace=_trace(error), **_named(request)
            )
        elif error.status >= 500 and not isinstance(error, DrainingError):
            self._log.error("a request failed", id=request.id, error=str(error), **_named(request))
        document = problem(error, request.id)
        headers = [(b"content-type", PROBLEM), *problem_headers(error)]
        return Answer(document.status, headers, encode(document))

    async def _stream(
        self, request: Request, answer: Answer, scope: Any, receive: Any, send: Any
    ) -> None:
        """An answer that is made piece by piece. A HEAD makes none of it, so it says no length either."""
        if request.method == "HEAD":
            await send(
                {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
            )
            await send({"type": "http.response.body", "body": b""})
            return
        response = StreamingResponse(yield_to_loop(answer.body), answer.status)  # type: ignore[arg-type]  # these are no bytes
        response.raw_headers = answer.headers
        try:
            await response(scope, receive, send)
        except Exception as error:  # half is sent: all that can be done is to cut it off
            self._log.error(
                "an answer broke off", id=request.id, trace=_trace(error), **_named(request)
            )
            raise

    def _say(self, request: Request, status: int, seconds: float) -> None:
        """The line in the log that the settings ask for. A slow request has one whatever they say."""
        slow = seconds >= self._slow_seconds
        say = self._log.warning if slow else self._log.info
        say(
            "a slow request" if slow else "request",
            id=request.id,
            status=status,
            milliseconds=round(seconds * 1_000, 1),
            **_named(request),
        )


async def yield_to_loop(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Between two pieces others have their turn, and it is seen whether the client is still there: a stream from a file that
    is read at once would never wait, and go on to its end for nobody."""
    try:
        async for piece in pieces:
            yield piece
            await asyncio.sleep(0)
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()  # now, and not when somebody collects it


def _trace(error: Exception) -> str:
    """Our own, because a logger's may show variables, and so tokens."""
    return "".join(traceback.format_exception(error))


def _named(request: Request) -> dict[str, str]:
    """What a log line says of a request. Never its query, which may hold what is private."""
    return {"method": request.method, "path": request.raw_path.decode("latin-1")[:_PATH_CHARS_MAX]}
