"""Tracing: a span for each request, and within it one for each engine call, exported by OTLP/HTTP.

Imported only if tracing is configured: it then wraps engines, endpoints and the app, and otherwise
costs nothing. A span contains no value, no query and no error message, and no key beyond those in
a path.
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

_PROPAGATED: Final = (b"traceparent", b"tracestate")

CLOSE_SECONDS: Final = 3.0
"""Timeout for exporting the last spans. The SDK's is 30 s: a supervisor would kill us first."""

_log = structlog.get_logger("keyhouse.serve")


class Tracing:
    """`endpoint` is the collector, such as http://127.0.0.1:4318. None: the SDK reads it from
    OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. Its other variables apply."""

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

    def service(self, spec: ServiceSpec) -> ServiceSpec:
        endpoints = [self._endpoint(spec.name, each) for each in spec.endpoints]
        return msgspec.structs.replace(spec, endpoints=endpoints)

    def app(self, app: Any) -> Any:
        """Return the ASGI application, traced. A caller's trace (`traceparent`) is continued."""

        async def traced(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            propagated = {
                name.decode(): value.decode("latin-1")
                for name, value in scope["headers"]
                if name in _PROPAGATED
            }
            attributes = {"http.request.method": scope["method"], "url.path": scope["path"]}
            with self._request(
                f"HTTP {scope['method']}", attributes, propagate.extract(propagated)
            ) as span:

                async def traced_send(message: Any) -> None:
                    if message["type"] == "http.response.start":
                        span.set_attribute("http.response.status_code", message["status"])
                        if message["status"] >= 500:
                            span.set_status(Status(StatusCode.ERROR))
                    await send(message)

                await app(scope, receive, traced_send)

        return traced

    async def close(self) -> None:
        """Export the remaining spans, in a thread that is abandoned if the collector hangs."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, CLOSE_SECONDS)
        if closing.is_alive():
            self._exporter.shutdown()  # type: ignore[no-untyped-call]  # stops its retries
            _log.warning("last traces not exported: the collector does not answer")

    def _endpoint(self, system: str, endpoint: Endpoint) -> Endpoint:
        async def traced(request: Request) -> bytes | None:
            word = request.subject.rpartition(".")[2]
            name = f"{system} {word if word in endpoint.operations else endpoint.name}"
            attributes = {"messaging.system": "nats", "messaging.destination.name": request.subject}
            with self._request(name, attributes, None):
                return await endpoint.handler(request)

        def handler(request: Request) -> Awaitable[bytes | None]:
            return asyncio.ensure_future(traced(request))  # a task has its own current span

        return msgspec.structs.replace(endpoint, handler=handler)

    @contextmanager
    def _request(self, name: str, attributes: dict[str, str], context: Any) -> Iterator[TraceSpan]:
        span = self._tracer.start_span(name, context, SpanKind.SERVER, attributes)
        with trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield span
            except Exception as error:
                _set_error(span, error)
                raise


class TracedEngine(EngineWrapper):
    """An Engine with a span for each `read`, `scan` and `commit`."""

    def __init__(self, system: str, engine: Engine, tracer: Tracer) -> None:
        super().__init__(engine)
        self._system = system
        self._tracer = tracer

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        with self._call("read", space, len(keys)):
            return await self._engine.read(space, keys, bytes_max=bytes_max)

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        with self._call("scan", space, limit):
            return await self._engine.scan(
                space,
                span,
                limit=limit,
                reverse=reverse,
                keys_only=keys_only,
                bytes_max=bytes_max,
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
        """Start a span that is not the current one: it has no children."""
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
            _set_error(span, error)
            raise
        finally:
            span.end()


def _set_error(span: TraceSpan, error: Exception) -> None:
    """Set the code only: the message of an error may contain keys."""
    code = error.code if isinstance(error, KeyhouseError) else type(error).__name__
    span.set_status(Status(StatusCode.ERROR, code))
