"""Traces: a span for each request of a face, and within it one for each call of an engine, sent to whoever collects them by
OTLP over HTTP.

Only where they are configured is this imported, and are engines, endpoints and the app put into others of their kind; where
not, nothing of it is on the way of a request. A span holds no value, no query and no message of an error; and no key, beyond
what stands in a path.
"""

import asyncio
import threading
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec
import structlog
from opentelemetry import propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as TraceSpan
from opentelemetry.trace import SpanKind, Status, StatusCode, Tracer

from keyhouse.engine import Batch, Engine, Page, Row, Span
from keyhouse.engines.wrapper import EngineWrapper
from keyhouse.errors import KeyhouseError
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.service.spec import ServiceSpec

_CARRIED: Final = (b"traceparent", b"tracestate")

CLOSE_SECONDS: Final = 3.0
"""How long a collector may take for what is left, at the end. The SDK would wait for thirty, and who runs the service would
kill it meanwhile."""

_log = structlog.get_logger("keyhouse.serve")


class Traces:
    """`endpoint` is where the collector listens, such as http://127.0.0.1:4318; None: where OTEL_EXPORTER_OTLP_ENDPOINT or
    OTEL_EXPORTER_OTLP_TRACES_ENDPOINT says. The SDK's other variables hold as well."""

    def __init__(self, endpoint: str | None, version: str) -> None:
        resource = Resource.create({"service.name": "keyhouse", "service.version": version})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter(
            endpoint=f"{endpoint.rstrip('/')}/v1/traces" if endpoint else None
        )
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer("keyhouse", version)

    def engine(self, system: str, engine: Engine) -> Engine:
        return TracedEngine(system, engine, self._tracer)

    def part(self, part: ServiceSpec) -> ServiceSpec:
        return msgspec.structs.replace(
            part, endpoints=[self._endpoint(part.name, each) for each in part.endpoints]
        )

    def app(self, app: Any) -> Any:
        """An ASGI application around one. What a caller's own trace says is taken up: `traceparent`."""

        async def traced(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            carried = {
                name.decode(): value.decode("latin-1")
                for name, value in scope["headers"]
                if name in _CARRIED
            }
            attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
            with self._request(
                f"HTTP {scope['method']}", attributes, propagate.extract(carried)
            ) as span:

                async def sending(message: Any) -> None:
                    if message["type"] == "http.response.start":
                        span.set_attribute("http.response.status_code", message["status"])
                        if message["status"] >= 500:
                            span.set_status(Status(StatusCode.ERROR))
                    await send(message)

                await app(scope, receive, sending)

        return traced

    async def close(self) -> None:
        """Send what there is. A collector that does not answer is left behind: by a thread that nobody waits for."""
        ending = threading.Thread(target=self._provider.shutdown, daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, CLOSE_SECONDS)
        if ending.is_alive():
            self._exporter.shutdown()  # type: ignore[no-untyped-call]  # it tries no more
            _log.warning("the last traces were not sent: their collector does not answer")

    def _endpoint(self, system: str, endpoint: Endpoint) -> Endpoint:
        async def traced(request: Request) -> bytes | None:
            word = request.subject.rpartition(".")[2]
            name = f"{system} {word if word in endpoint.operations else endpoint.name}"
            attributes = {"messaging.system": "nats", "messaging.destination.name": request.subject}
            with self._request(name, attributes, None):
                return await endpoint.handler(request)

        def begin(request: Request) -> Awaitable[bytes | None]:
            return asyncio.ensure_future(
                traced(request)
            )  # a task of its own: what is current in it is nobody else's

        return msgspec.structs.replace(endpoint, handler=begin)

    @contextmanager
    def _request(self, name: str, attributes: dict[str, str], context: Any) -> Iterator[TraceSpan]:
        span = self._tracer.start_span(name, context, SpanKind.SERVER, attributes)
        with trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield span
            except Exception as error:
                _blame(span, error)
                raise


class TracedEngine(EngineWrapper):
    """Is an Engine. A span for each `read`, `scan` and `commit`; what goes on by itself has none."""

    def __init__(self, system: str, engine: Engine, tracer: Tracer) -> None:
        super().__init__(engine)
        self._system = system
        self._tracer = tracer

    async def read(self, space: str, keys: Sequence[str]) -> list[Row | None]:
        with self._call("read", space, len(keys)):
            return await self._engine.read(space, keys)

    async def scan(
        self, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False
    ) -> Page:
        with self._call("scan", space, limit):
            return await self._engine.scan(
                space, span, limit=limit, reverse=reverse, keys_only=keys_only
            )

    async def commit(self, space: str, batch: Batch) -> int | None:
        with self._call(
            "commit", space, len(batch.puts) + len(batch.deletes) + len(batch.adds)
        ) as span:
            revision = await self._engine.commit(space, batch)
            span.set_attribute("keyhouse.applied", revision is not None)
            return revision

    @contextmanager
    def _call(self, name: str, space: str, rows: int) -> Iterator[TraceSpan]:
        """Not the current span of anything: nothing is within it."""
        span = self._tracer.start_span(
            f"engine {name}",
            kind=SpanKind.CLIENT,
            attributes={
                "keyhouse.system": self._system,
                "keyhouse.space": space,
                "keyhouse.rows": rows,
            },
        )
        try:
            yield span
        except Exception as error:
            _blame(span, error)
            raise
        finally:
            span.end()


def _blame(span: TraceSpan, error: Exception) -> None:
    """By its code: an error's message may hold keys."""
    span.set_status(
        Status(
            StatusCode.ERROR,
            error.code if isinstance(error, KeyhouseError) else type(error).__name__,
        )
    )
