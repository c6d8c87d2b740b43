"""A transcript: requests over HTTP and NATS, each with the reply that a client sees.

`python -m tests.service.support.transcript` writes the replies of today into the file of the
transcript: for a change of them that is meant.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry

from keyhouse.auth import JwtSettings, mint
from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http import App, make_app
from keyhouse.nats.endpoint import (
    PROBLEM_HEADER,
    Endpoint,
    Request,
    error_headers,
    error_reply,
)
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse_rosey.service import SERVICE as ROSEY
from tests.service.support.transcript_requests import CLOSED, SCHEMA, requests
from tests.support.threaded_service import FAST, SECRET

PATH: Final = Path(__file__).parent.parent / "transcript.jsonl"

Line = dict[str, Any]
"""`to`: the service. `http`: method and path, or `nats`: the subject; `as`: the scopes of a token.
`reply`: status, headers and body; over NATS headers and body, or null where there is none. A body
is JSON, or text if it has other bytes than the JSON of a line. `advance` is not a request: it moves
the clock on by so many seconds."""

_HEADERS: Final = ("etag", "location", "content-type", "allow", "retry-after", "www-authenticate")
_ULID: Final = re.compile("01[0-9A-HJKMNP-TV-Z]{24}")
_CAUGHT_UP: Final = b": caught-up "


class Publications:
    """Takes the messages that a service publishes, and runs its tasks."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self._count = 0

    async def publish(self, subject: str, data: bytes, *, tenant: str | None = None) -> None:
        self._count += 1
        await asyncio.sleep(0)

    async def published(self, count: int) -> None:
        """Wait until so many messages were published."""
        while self._count < count:
            await asyncio.sleep(0)

    async def has_listener(self, subject: str, data: bytes) -> bool:
        return "nobody" not in subject

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def close(self) -> None:
        await asyncio.sleep(0)  # tasks that have not started cannot be cancelled cleanly
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Replayed:
    """Services of one process, in which requests run one after the other."""

    def __init__(self, clock: ManualClock, specs: dict[str, ServiceSpec]) -> None:
        self._clock = clock
        self._apps: dict[str, App] = {name: make_app([spec]) for name, spec in specs.items()}
        self._specs = specs
        self._ids: dict[str, str] = {}
        self.publications = Publications()

    async def line(self, line: Line) -> Line:
        """Return the line with the reply of these services."""
        asked = {name: value for name, value in line.items() if name != "reply"}
        if "advance" in line:
            self._clock.advance(seconds=line["advance"])
            return asked
        reply = await (self._http(line) if "http" in line else self._nats(line))
        return {**asked, "reply": json.loads(self._named(json.dumps(reply)))}

    def _named(self, text: str) -> str:
        """Return a text in which ids are named by the order in which they appear."""
        return _ULID.sub(lambda match: self._id(match[0]), text)

    def _id(self, id: str) -> str:
        return self._ids.setdefault(id, f"ULID-{len(self._ids) + 1}")

    async def _http(self, line: Line) -> Any:
        method, _, target = line["http"].partition(" ")
        path, _, query = f"/{self._specs[line['to']].name}{target}".partition("?")
        headers = {"host": "localhost", "x-request-id": "1", **line.get("headers", {})}
        if "as" in line:
            token = mint(
                JwtSettings(jwt_secret=SECRET),
                Path(),
                "ann",
                clock=self._clock,
                scopes=line["as"].split(),
            )
            headers["authorization"] = f"Bearer {token}"
        body = _sent(line.get("body", ""))
        if body:
            headers = {"content-type": "application/json", **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), text.encode()) for name, text in headers.items()],
            "client": ("127.0.0.1", 50_000),
        }
        return await self._called(self._apps[line["to"]], scope, body)

    async def _called(self, app: App, scope: dict[str, Any], body: bytes) -> list[Any]:
        """Return the response of an app. A stream of events ends when it has caught up."""
        sent: dict[str, Any] = {"body": b""}
        ended, received = asyncio.Event(), iter([body])

        async def receive() -> dict[str, Any]:
            with suppress(StopIteration):
                return {"type": "http.request", "body": next(received), "more_body": False}
            await ended.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                sent.update(status=message["status"], headers=message["headers"])
                return
            sent["body"] += bytes(message.get("body", b""))
            if not message.get("more_body") or _CAUGHT_UP in sent["body"]:
                ended.set()

        running = asyncio.create_task(app(scope, receive, send))
        await ended.wait()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        found = {name.decode(): value.decode() for name, value in sent["headers"]}
        text = sent["body"].decode()
        if scope["path"].endswith("/openapi.json"):
            return [sent["status"], {}, _digests(json.loads(text))]
        return [
            sent["status"],
            {name: found[name] for name in _HEADERS if name in found},
            _shown(text),
        ]

    async def _nats(self, line: Line) -> Any:
        subject = line["nats"]
        [endpoint] = [
            each
            for each in self._specs[line["to"]].endpoints
            if re.fullmatch(each.subject.replace(".", "[.]").replace("*", "[^.]+"), subject)
        ]
        reply = line.get("reply_to", "_INBOX.x")
        request = Request(subject, _sent(line.get("body", "")), reply, self.publications)
        return await _answered(endpoint, request)


async def _answered(endpoint: Endpoint, request: Request) -> Any:
    try:
        response = await endpoint.handler(request)
    except Exception as error:
        headers = error_headers(error, problem=endpoint.problems)
        if PROBLEM_HEADER in headers:
            headers = {PROBLEM_HEADER: headers[PROBLEM_HEADER]}
        return [headers, _shown(error_reply(error).decode())]
    return None if response is None else [{}, _shown(response.decode())]


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _shown(text: str) -> Any:
    """Return JSON as it is in a line, if that is the same bytes; else the text."""
    with suppress(ValueError):
        value = json.loads(text)
        if not isinstance(value, str) and _text(value) == text:
            return value
    return text


def _sent(body: Any) -> bytes:
    return (body if isinstance(body, str) else _text(body)).encode()


def _digests(document: Any) -> dict[str, str]:
    """Return a digest of each operation and component of an OpenAPI document."""
    parts = {
        f"{method} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    for kind, components in document["components"].items():
        parts |= {f"{kind} {name}": component for name, component in components.items()}
    parts[""] = {name: part for name, part in document.items() if isinstance(part, str | dict)}
    parts[""] = {**parts[""], "paths": [*document["paths"]], "components": None}
    return {
        name: hashlib.sha256(json.dumps(part).encode()).hexdigest()[:12]
        for name, part in parts.items()
    }


@asynccontextmanager
async def replayed(folder: Path) -> AsyncIterator[Replayed]:
    clock = ManualClock()
    specs: dict[str, ServiceSpec] = {}
    engines: list[MemoryEngine] = []

    async def build(name: str, make: Any, settings: dict[str, Any]) -> None:
        engines.append(MemoryEngine(clock=clock))
        context = ServiceContext(
            engine=engines[-1], data=folder, metrics=CollectorRegistry(), settings=settings
        )
        specs[name] = make(context)

    tokens = {"jwt_secret": SECRET, **FAST}
    await build("kinds", schema_service(SCHEMA), tokens)
    await build("closed", schema_service(SCHEMA), {**tokens, "records": CLOSED})
    await build("fixed", schema_service(SCHEMA), {**tokens, "space": "main"})
    await build("rosey", ROSEY, {**FAST, "payload_prefix": "old.kv"})
    services = Replayed(clock, specs)
    try:
        yield services
    finally:
        await services.publications.close()
        for engine in engines:
            await engine.close()


async def replay(lines: Iterable[Line], folder: Path) -> list[Line]:
    async with replayed(folder) as services:
        return [await services.line(line) for line in lines]


def read() -> list[Line]:
    return [json.loads(line) for line in PATH.read_text().splitlines()]


def write(lines: Iterable[Line]) -> None:
    PATH.write_text("".join(f"{_text(line)}\n" for line in lines))


if __name__ == "__main__":
    write(asyncio.run(replay(requests(), Path())))
