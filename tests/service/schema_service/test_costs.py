"""A call costs its tenant the same over HTTP and NATS: every verb of the table, and operations of
one's own."""

import asyncio
import json
from datetime import date
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry

from keyhouse import Schema, Space, Store, operation
from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.nats.endpoint import Request
from keyhouse.operations.batch import EncodedBatch
from keyhouse.operations.catalog import Catalog
from keyhouse.operations.requests import Increment, RecordAddresses
from keyhouse.operations.table import BATCH, CLEAR, VERBS, WATCH
from keyhouse.operations.verb import VALUE, Verb
from keyhouse.remote_store.http_transport import HttpTransport
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceContext, ServiceSpec
from tests.service.schema_service.support.recipes import (
    BOX,
    COOKED,
    RECIPE,
    VISITS,
    Cooked,
    Recipe,
)
from tests.service.support.transcript import Replayed
from tests.support.threaded_service import SECRET

COUNT: Final = 120
"""Records of each kind: more than cost one request."""

BURST: Final = 100
DAY: Final = "2026-01-01"
FIELDS: Final[dict[str, dict[str, Any]]] = {
    "record": {"id": "r000"},
    "counter": {"id": "r000", "day": DAY},
    "log": {"recipe": "r000", "at": "01ARZ3NDEKTSV4RRFFQ69G5FAV"},
}
NAMES: Final = {"record": "recipe", "counter": "visits", "log": "cooked"}
ROW: Final = {"slug": "r000", "tag": "sweet"}
VALUES: Final[dict[str, Any]] = {
    "create": {"id": "new", "title": "New", "slug": "new"},
    "put": {"id": "r000", "title": "Soup", "slug": "r000", "tags": ["sweet"]},
    "patch": {"minutes": 6},
    "append": {"recipe": "r000", "stars": 1},
}
CALLS: Final = [
    pytest.param(verb, kind, id="-".join(filter(None, (verb.name, kind))))
    for verb in VERBS
    if verb.http
    for kind in (verb.kinds or (None,))
]


@operation(access="read")
async def read_all(store: Store) -> None:
    """Read every recipe."""
    async for _ in store.scan(RECIPE):
        pass


SCHEMA: Final = Schema("box", *BOX.records, space=Space("a person"), operations=(read_all,))


class Service:
    """One service of a tenant with many records; `cost` is what its calls since `rest` cost."""

    def __init__(self, folder: Path) -> None:
        self._clock = ManualClock()
        self.engine = ServedEngine(MemoryEngine(clock=self._clock))
        context = ServiceContext(
            engine=self.engine,
            data=folder,
            metrics=CollectorRegistry(),
            settings={"jwt_secret": SECRET, "rate_per_second": 1, "rate_burst": BURST},
        )
        self._spec = cast(ServiceSpec, schema_service(SCHEMA)(context))
        self.replayed = Replayed(self._clock, {"box": self._spec})

    async def fill(self) -> None:
        store = Store(SCHEMA, self.engine, "ann")
        note = {"record": "note", "fields": {"name": "first"}, "value": "of the space"}
        assert (await self.nats("put", note))["success"], "it has all indexes from now on"
        for number in range(COUNT):
            id = f"r{number:03d}"
            await store.put(RECIPE, Recipe(id=id, title="t", slug=id, tags=["sweet"]))
            await store.add(VISITS, 1, id=id, day=date.fromisoformat(DAY))
            await store.append(COOKED, Cooked(recipe="r000", stars=1))

    async def close(self) -> None:
        await self.replayed.publications.close()
        await self.engine.close()

    def rest(self) -> None:
        self._clock.advance(seconds=10 * BURST)

    @property
    def cost(self) -> int:
        assert self._spec.rates is not None
        return BURST - self._spec.rates.left("ann")

    async def http(self, line: str, body: Any = "") -> Any:
        asked = {"to": "box", "http": line, "as": "read write", "body": body}
        return (await self.replayed.line(asked))["reply"]

    async def nats(self, operation: str, body: Any) -> Any:
        subject = f"keyhouse.box.ann.{operation}"
        data = json.dumps(body).encode() if body != "" else b""
        [endpoint] = self._spec.endpoints
        request = Request(subject, data, "_INBOX.x", self.replayed.publications)
        return json.loads(await endpoint.handler(request) or b"")


class Network(httpx.AsyncBaseTransport):
    """Passes the requests of a remote store to a service of this process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().removeprefix("/box")
        text = (await request.aread()).decode()
        status, headers, body = await self._service.http(f"{request.method} {path}", text)
        return httpx.Response(status, headers=headers, text=json.dumps(body))


def request_of(verb: Verb, kind: Any) -> dict[str, Any]:
    """Return the members of a request, made from the declaration of its verb."""
    if kind is None:
        adds = {"op": "add", "counter": "views", "fields": {"id": "a"}, "by": 1}
        return {"operations": [adds] * COUNT} if verb.body is EncodedBatch else {}
    body: dict[str, Any] = {kind: NAMES[kind]}
    [served] = [each for each in Catalog(SCHEMA, {}).all("http", kind) if each.name == NAMES[kind]]
    if verb.key == "address":
        body["fields"] = FIELDS[kind]
    elif verb.key == "row":
        by, row = next(iter(verb.rows(served).items()))
        body |= {"by": by, "fields": {name: ROW[name] for name in row.fields}}
    elif verb.key == "query" and verb.named is not None:
        fields = {**FIELDS["record"], **FIELDS[kind]}
        body["fields"] = {name: fields[name] for name in verb.named(served) if name in fields}
    more = {"limit": 500, "days": 3}
    body |= {name: more[name] for name, _, _ in verb.query if name in more}
    if verb.body is VALUE:
        body["value"] = VALUES[verb.name]
    elif verb.body is Increment:
        body["by"] = 1
    elif verb.body is RecordAddresses:
        body["addresses"] = [FIELDS[kind]] * COUNT
    return body


async def costs(folder: Path, over_http: Any, over_nats: Any) -> tuple[int, int]:
    """Return what a call costs over HTTP and NATS, each in a new service."""
    found = []
    for call in (over_http, over_nats):
        service = Service(folder)
        await service.fill()
        service.rest()
        await call(service)
        found.append(service.cost)
        await service.close()
    http, nats = found
    return http, nats


@pytest.mark.parametrize(("verb", "kind"), CALLS)
def test_a_call_costs_the_same_over_http_and_nats(verb: Verb, kind: Any, tmp_path: Path) -> None:
    """Over NATS a call cost by its reply, over HTTP by what its engine read."""
    body = request_of(verb, kind)

    async def over_http(service: Service) -> None:
        if verb is WATCH:
            status, _, events = await service.http(f"GET /watch?record={NAMES[kind]}&since=0")
            assert status == 200 and events.count("event: put") >= COUNT
            return
        transport = HttpTransport("http://box", "box", "token", None, Network(service))
        await transport.call(verb.name, body)
        await transport.close()

    async def over_nats(service: Service) -> None:
        watched = {"subject": "keyhouse.changes.box.ann.x", "since": 0} if verb is WATCH else {}
        reply = await service.nats(verb.name, {**body, **watched})
        assert reply["success"], reply
        if verb is WATCH:
            await service.replayed.publications.published(COUNT)

    http, nats = asyncio.run(costs(tmp_path, over_http, over_nats))
    assert http == nats
    reads_many = verb in (BATCH, CLEAR, WATCH) or verb.name in ("list", "keys", "get_many")
    assert http >= 1 + COUNT // 100 if reads_many else http <= 2


def test_an_operation_of_ones_own_costs_what_it_reads_over_nats_too(tmp_path: Path) -> None:
    """A scan was free over NATS: only the replies of generated operations had rows to count."""

    async def over_http(service: Service) -> None:
        assert (await service.http("POST /operations/read_all"))[0] == 204

    async def over_nats(service: Service) -> None:
        assert (await service.nats("read_all", ""))["success"]

    http, nats = asyncio.run(costs(tmp_path, over_http, over_nats))
    assert http == nats >= 1 + COUNT // 100
