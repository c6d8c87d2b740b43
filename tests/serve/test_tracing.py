"""Tracing: spans of requests and engine calls reach a collector, and contain nothing private."""

import asyncio
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import nats
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from structlog.testing import capture_logs

from keyhouse.errors import UsageError
from keyhouse.serve import tracing
from keyhouse.serve.server import Server
from keyhouse.settings.sources import LoadedSettings, load_settings
from tests.serve.support import jars
from tests.support.nats_servers import nats_server


class Collector(ThreadingHTTPServer):
    """Receives spans as a real collector does."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Collecting)
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def spans(self) -> list[Any]:
        found = [ExportTraceServiceRequest.FromString(body) for body in self.bodies]
        scopes = [
            scope
            for each in found
            for resource in each.resource_spans
            for scope in resource.scope_spans
        ]
        return [span for scope in scopes for span in scope.spans]


class Collecting(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        assert self.path == "/v1/traces"
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def collector() -> Iterator[Collector]:
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def given(folder: Path, **flags: Any) -> LoadedSettings:
    place = {"data": str(folder), "http": "127.0.0.1:0", "nats": nats_server().url}
    return load_settings(place | flags, {}, None, systems=("jars",))


async def use(folder: Path, **flags: Any) -> None:
    """Fill a jar over NATS, and read it over HTTP within a trace of the caller."""
    async with Server(given(folder, **flags), {"jars": jars.service}) as place:
        client = await nats.connect(nats_server().url)
        await client.request("jars.put", json.dumps(["jam", 7]).encode(), timeout=30)
        await client.close()
        async with httpx.AsyncClient(base_url=str(place.http), timeout=30) as http:
            caller = {"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"}
            assert (await http.get("/jars/jars/jam", headers=caller)).json() == 7
            assert (await http.get("/jars/jars/jam?secret=1", headers=caller)).status_code == 400


def attributes(span: Any) -> dict[str, Any]:
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in span.attributes
    }


def test_the_span_of_a_request_contains_those_of_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_SECONDS", 30)
    with collector() as server:
        asyncio.run(use(tmp_path, otlp_endpoint=server.url))
        spans = server.spans()
        [asked] = [span for span in spans if span.name == "jars jars"]
        [got, refused] = [span for span in spans if span.name == "HTTP GET"]
        within = {
            span.name: attributes(span) for span in spans if span.parent_span_id == asked.span_id
        }
        assert within["engine commit"] == {
            "keyhouse.system": "jars",
            "keyhouse.space": "shelf",
            "keyhouse.rows": 1,
            "keyhouse.applied": True,
        }
        assert set(within) == {"engine commit", "engine read"}
        assert attributes(asked)["messaging.destination.name"] == "jars.put"
        assert got.trace_id.hex() == "ab" * 16 and got.parent_span_id.hex() == "cd" * 8, (
            "it continues with the caller's"
        )
        assert [span.name for span in spans if span.parent_span_id == got.span_id] == [
            "engine read"
        ]
        assert [attributes(span)["http.response.status_code"] for span in (got, refused)] == [
            200,
            400,
        ]
        assert b"secret" not in b"".join(server.bodies), "no query"


def test_requests_are_answered_while_the_collector_is_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with collector() as server:
        away = server.url
    asyncio.run(use(tmp_path, otlp_endpoint=away))


def test_a_collector_that_does_not_answer_does_not_delay_the_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: shutdown took thirty seconds, as long as systemd waits before it kills."""
    monkeypatch.setattr(tracing, "CLOSE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, capture_logs() as logs:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "3600")
        asyncio.run(use(tmp_path, otlp_endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}"))
    assert "last traces not exported: the collector does not answer" in [
        line["event"] for line in logs
    ]


def test_the_variable_of_opentelemetry_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "CLOSE_SECONDS", 30)
    with collector() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        asyncio.run(use(tmp_path))
        assert len(server.spans()) > 2


def test_without_a_collector_opentelemetry_is_not_imported() -> None:
    program = (
        "import sys, keyhouse.serve.server; "
        "assert not any(name.startswith('opentelemetry') for name in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_an_invalid_endpoint_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Invalid trace collector URL"):
        given(tmp_path, otlp_endpoint="collector:4318")
