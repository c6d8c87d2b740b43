"""Private and sealed members never leave a served schema in clear.

Values are planted in members that every kind of derived row is made of. Then every route of the
OpenAPI document and every NATS operation is called: by each row, with each parameter, page after
page, with valid and malformed bodies. New routes, parameters and operations are called without a
line here. The values are searched in responses, headers, cursors, events, logs and metrics.
"""

import asyncio
import json
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from msgspec import Struct
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from keyhouse import Index, KeyRing, Record, RecordCount, RemoteStore, Schema, Space
from keyhouse.schema.operation import OPERATIONS
from tests.service.schema_service.support.nats_caller import Caller, called
from tests.service.schema_service.support.served import Served, serving
from tests.sizes import size
from tests.support.engine_openers import memory
from tests.support.planted import (
    BADGE,
    HMAC_ROWS,
    NUMBER,
    PERSON,
    PRIVATE,
    SEALED,
    VAULT,
    badge,
    found_in,
    person,
)

PEOPLE: Final = ("p1", "p2", "p3")
FIELDS: Final = {"id": "p1", "person": "p1", "number": "b1"}
DECOY: Final = "pl4nt3e"
"""The text after `PRIVATE`, and nobody's."""

INVALID: Final[list[tuple[str, Any]]] = [
    *(
        (name, value)
        for name in (*PERSON.private, *PERSON.sealed)
        for mark in (PRIVATE if name in PERSON.private else SEALED,)
        for value in (f"{mark} \0", f"{mark} " * 400, mark, [mark, 1], {mark: mark}, NUMBER + 0.5)
    ),
    ("phone", -NUMBER * 10**6),
]
"""Values that the private and sealed members cannot have, or not in a key."""

ROWS: Final = sorted({str(row.name) for record in (PERSON, BADGE) for row in record.derived})
TAKEN: Final = person("p5", pin=person("p1")["pin"])
BODIES: Final[list[Any]] = [
    {},
    [],
    None,
    "x",
    {"by": 1},
    {"addresses": [{"id": "p1"}, {"id": "p2"}]},
    {"addresses": [{"person": "p1", "number": "b1"}]},
    {"operations": []},
    {"operations": [{"op": "drop"}]},
    {"operations": [{"op": "put", "record": "person", "value": person("p4")}]},
    {"operations": [{"op": "put", "record": "person", "value": TAKEN}]},
    {"operations": [{"op": "patch", "record": "person", "fields": {"id": "p1"}, "value": {}}]},
    {"operations": [{"op": "check", "record": "person", "fields": {"id": "p1"}, "expect": 1}]},
    person("p1"),
    person("p1", team="green", colour="red"),
    {**person("p6"), "pin": person("p2")["pin"]},
    {**person("p6"), "aliases": person("p2")["aliases"]},
    person("p1", phone=NUMBER * 1_000),
    person("p1", pin=f"{PRIVATE}" * 400),
    person("p1", pin=f"{PRIVATE}\0"),
    person("p1", aliases=[f"{PRIVATE}/\ud7ff", ""]),
    *(person("p1", **{name: value}) for name, value in INVALID),
    *({name: value} for name, value in INVALID),
    *(
        {"operations": [{"op": "put", "record": "person", "value": person("p1", **{name: value})}]}
        for name, value in INVALID
    ),
    {"name": "New", "pi": "x"},
    {"name": 7},
    {"pin": person("p2")["pin"]},
    {"aliases": person("p2")["aliases"]},
    badge("b1"),
    {**badge("b2"), "person": "nobody"},
]
"""Bodies of requests: valid ones of each kind, conflicts, and malformed ones."""


def key_ring(folder: Path) -> str:
    KeyRing.new().save(folder / "ring.json")
    return str(folder / "ring.json")


class Witness:
    """Keeps what leaves the service, and reports the planted values in it."""

    def __init__(self) -> None:
        self.seen = 0
        self.leaks: list[str] = []

    def see(self, what: str, data: bytes) -> None:
        self.seen += 1
        for text in found_in(data):
            self.leaks.append(f"{what}: {text[:300]!r}")
        for text in found_in(_without_values(data), marks=(SEALED.encode(),)):
            self.leaks.append(f"{what}: sealed, {text[:300]!r}")

    def check(self, *, least: int) -> None:
        assert not self.leaks, "\n".join(self.leaks[:20])
        assert self.seen >= least


def _without_values(data: bytes) -> bytes:
    """Return JSON without the values of items, which show sealed members to who may read."""
    try:
        return json.dumps(_stripped(json.loads(data))).encode()
    except ValueError:
        return data


def _stripped(part: Any) -> Any:
    if isinstance(part, dict):
        is_item = {"key", "revision"} <= part.keys()
        return {k: _stripped(v) for k, v in part.items() if not (is_item and k == "value")}
    return [_stripped(each) for each in part] if isinstance(part, list) else part


def plant(box: httpx.Client) -> None:
    box.post("/clear")
    for id in PEOPLE:
        assert box.put(f"/records/person/{id}", json=person(id)).status_code in (200, 201)
    assert box.put("/records/badge/p1/b1", json=badge("b1")).status_code in (200, 201)


# HTTP


PLANTED_TEXTS: Final = (PRIVATE, *(f"{PRIVATE}-{name}-p1" for name in ("pin", "alias", "note")))


def queries(parameters: list[dict[str, Any]]) -> Iterator[dict[str, str]]:
    """Yield queries of a route: by each row, with each parameter; the planted text is `PRIVATE`."""
    named = {each["name"]: each for each in parameters if each["in"] == "query"}
    choices = {
        name: each["schema"]["enum"] for name, each in named.items() if "enum" in each["schema"]
    }
    needed = [name for name, each in named.items() if each["required"] and name in choices]
    optional = ["by"] if "by" in choices and "by" not in needed else []
    days = {"days": "7"} if "days" in named else {}
    options = [[*choices[name]] for name in needed]
    options += [[None, *choices[name]] for name in optional]
    for values in product(*options):
        chosen = dict(zip([*needed, *optional], values, strict=True))
        base = days | {name: value for name, value in chosen.items() if value is not None}
        yield base
        texts = [n for n in named if n not in {*chosen, *days, "limit", "order", "cursor", "since"}]
        if "limit" in named:
            yield {**base, "limit": "1", "order": "desc"}
            yield {**base, "limit": "1"}
        for name in texts:
            yield {**base, name: f"{PRIVATE}-pin-p1"}
        for text in PLANTED_TEXTS[: size(2, 4, 4)]:
            yield base | {name: text for name in texts if "." not in name}
            yield from ({**base, name: text} for name in texts if name == base.get("by"))
        yield base | {name: "red" for name in texts if name == "team"}
        yield base | {name: FIELDS[name] for name in texts if name in FIELDS}


@pytest.mark.soak
def test_no_route_shows_a_private_or_sealed_member(tmp_path: Path) -> None:
    """Cursors had them in base64; filters, lookups and counts found them; a conflict named them."""
    witness = Witness()
    with (
        capture_logs() as logs,
        serving(memory(tmp_path), tmp_path, VAULT, key_ring=key_ring(tmp_path)) as served,
    ):
        box = served.client()
        plant(box)
        document = box.get("/openapi.json")
        witness.see("openapi", document.content)
        paths = document.json()["paths"]
        reads = [
            (path, "get", methods["get"]) for path, methods in paths.items() if "get" in methods
        ]
        writes = [
            (path, method, operation)
            for path, methods in paths.items()
            for method, operation in methods.items()
            if method != "get"
        ]
        for path, _, operation in reads:
            _read(witness, box, served, path, operation)
        for path, method, operation in sorted(writes, key=lambda each: each[1] == "delete"):
            plant(box)
            _write(witness, box, method, path, operation)
        for place in ("/schema", "/docs", "/nothing", "/records/person/p1?x=y"):
            witness.see(place, box.get(place).content)
        witness.see("metrics", generate_latest(served.metrics))
    for line in logs:
        witness.see("log", json.dumps(line, default=str).encode())
    assert len(logs) > 100, "requests and rejections are logged at DEBUG"
    assert len(reads) + len(writes) >= 20
    witness.check(least=500)


def _read(witness: Witness, box: httpx.Client, served: Served, path: str, operation: Any) -> None:
    at = re.sub(r"\{(\w+)\}", lambda field: FIELDS.get(field[1], "x"), path)
    if "text/event-stream" in operation["responses"]["200"]["content"]:
        for name in ("person", "badge", "visits"):
            with box.stream("GET", f"{at}?record={name}&since=0") as stream:
                for line in stream.iter_lines():
                    witness.see(at, line.removeprefix("data: ").encode())
                    if line.startswith(": caught-up"):
                        break
        return
    for query in queries(operation.get("parameters", [])):
        cursor: str | None = ""
        while cursor is not None:
            given = {**query, "cursor": cursor} if cursor else query
            reply = box.get(at, params=given)
            witness.see(f"{at} {given}", str(reply.headers).encode())
            witness.see(f"{at} {given}", reply.content)
            assert reply.status_code < 500, reply.text
            cursor = reply.json().get("cursor") if "limit" in query else None
        _check_oracle(box, at, query, reply)


def _check_oracle(
    box: httpx.Client, at: str, query: dict[str, str], planted: httpx.Response
) -> None:
    """A planted value is answered as one that nobody has: it is not found out by trying."""
    if query.get("by") in HMAC_ROWS or not any(PRIVATE in each for each in query.values()):
        return
    decoy = {name: value.replace(PRIVATE, DECOY) for name, value in query.items()}
    other = box.get(at, params=decoy)
    assert (other.status_code, _comparable(other)) == (planted.status_code, _comparable(planted)), (
        f"{at} {query}: {planted.text} {other.text}"
    )


def _comparable(reply: httpx.Response) -> Any:
    body = json.loads(reply.text.replace(DECOY, PRIVATE))
    return {name: part for name, part in body.items() if name not in ("requestId", "revision")}


IS_LONG: Final = bool(size(0, 1, 1))
WRITE_HEADERS: Final[list[dict[str, str]]] = [{}, {"If-Match": '"1"'}, {"Idempotency-Key": "k"}]
"""In a usual run, each body is sent to each route with one of them, in turn."""


def _write(witness: Witness, box: httpx.Client, method: str, path: str, operation: Any) -> None:
    at = re.sub(r"\{(\w+)\}", lambda field: FIELDS.get(field[1], "x"), path)
    has_body = "requestBody" in operation
    for number, body in enumerate(BODIES if has_body else [None]):
        for headers in WRITE_HEADERS if IS_LONG or not has_body else [WRITE_HEADERS[number % 3]]:
            given: dict[str, Any] = {"json": body} if has_body else {}
            reply = box.request(method, at, headers=headers, **given)
            witness.see(f"{method} {at} {body}", reply.content)
            witness.see(f"{method} {at} {body}", str(reply.headers).encode())
            assert reply.status_code < 500, reply.text


# NATS

UNUSABLE: Final[list[Any]] = ["", f"{PRIVATE}\0", [f"{PRIVATE}"], {f"{PRIVATE}": 1}, NUMBER]
"""Values of fields of a key that no value has."""


def requests() -> Iterator[dict[str, Any]]:
    """Yield bodies of requests. One body has the members of all operations."""
    targets: list[tuple[dict[str, str], list[str | None]]] = [
        ({"record": each.name}, [None, *(row.name for row in each.derived)])
        for each in (PERSON, BADGE)
    ]
    targets.append(({"counter": "visits"}, [None]))
    fields = [
        {},
        {"id": "p1"},
        {"person": "p1", "number": "b1"},
        {"team": "red"},
        *(
            {name: f"{PRIVATE}-pin-p1"}
            for name in ("pin", "alias", "part", "code", "email", "note", "born", "phone")
        ),
        *(
            {name: value}
            for name in ("pin", "email", "note")[: size(1, 3, 3)]
            for value in UNUSABLE
        ),
        {"pin.prefix": PRIVATE},
        {"team": "red", "pin.prefix": PRIVATE},
    ]
    for target, rows in targets:
        for by, each in product(rows, fields):
            yield {**target, "fields": each, **({} if by is None else {"by": by})}


def operation_bodies(operation: str) -> Iterator[dict[str, Any]]:
    """Yield the bodies of an operation: reads by each row, writes with each value."""
    if operation in ("create", "put", "patch", "append", "batch", "delete", "add", "clear"):
        for value in BODIES:
            for target in ({"record": "person", "fields": {"id": "p1"}}, {"record": "badge"}):
                yield {**target, "value": value}
            yield {"record": "person", "value": value}
            if isinstance(value, dict) and "operations" in value:
                yield value
        yield {"counter": "visits", "fields": {"id": "p1"}, "by": 1}
        return
    addresses = [{"id": "p1"}, {"id": "p2"}]
    for body in requests():
        yield {**body, "limit": 1, "days": 7, "addresses": addresses, "subject": "_INBOX_ann.w"}


@pytest.mark.soak
def test_no_nats_operation_shows_a_private_or_sealed_member(tmp_path: Path) -> None:
    witness = Witness()
    settings = {"key_ring": key_ring(tmp_path), "rate_burst": 1_000_000}

    async def scenario() -> None:
        with capture_logs() as logs:
            async with called("memory", tmp_path, VAULT, **settings) as call:
                changes: asyncio.Queue[bytes] = asyncio.Queue()

                async def changed(message: Any) -> None:
                    changes.put_nowait(message.data)

                await call.client.subscribe("_INBOX_ann.>", cb=changed)
                await _plant_by_nats(call)
                for operation in OPERATIONS:
                    await _see_operation(witness, call, operation)
                    await _plant_by_nats(call)
                    await call("watch", {"record": "person", "subject": "_INBOX_ann.w", "since": 0})
                while changes.qsize():
                    witness.see("watch", changes.get_nowait())
        for line in logs:
            witness.see("log", json.dumps(line, default=str).encode())

    asyncio.run(scenario())
    witness.check(least=1_000)


async def _see_operation(witness: Witness, call: Caller, operation: str) -> None:
    for body in operation_bodies(operation):
        cursor: str | None = ""
        while cursor is not None:
            given = {**body, "cursor": cursor} if cursor else body
            reply = await call.client.request(
                f"keyhouse.vault.ann.{operation}", json.dumps(given).encode(), timeout=30
            )
            witness.see(f"{operation} {given}", reply.data)
            witness.see(f"{operation} {given}", str(reply.headers).encode())
            answer = json.loads(reply.data)
            assert answer.get("error_code") not in ("INTERNAL_ERROR", "DATABASE_ERROR"), answer
            cursor = answer.get("cursor")


async def _plant_by_nats(call: Caller) -> None:
    await call("clear", {})
    for id in PEOPLE:
        await call("put", {"record": "person", "value": person(id)})
    assert (await call("put", {"record": "badge", "value": badge("b1")}))["success"]


# Declarations that are shown on purpose, and a client's own copy


def test_a_row_by_an_hmac_finds_the_record_of_who_knows_the_value(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path, VAULT, key_ring=key_ring(tmp_path)) as served:
        box = served.client()
        plant(box)
        query = {"by": "pin-hmac", "pin": person("p2")["pin"]}
        assert box.get("/lookup/person", params=query).json()["fields"] == {"id": "p2"}
        listed = box.get(
            "/records/person", params={"by": "note-hmac", "note": person("p1")["note"]}
        )
        assert [item["fields"]["id"] for item in listed.json()["items"]] == ["p1"]


@pytest.mark.parametrize("row", [name for name in ROWS if name not in {*HMAC_ROWS, "team"}])
def test_every_read_by_a_row_with_private_members_is_forbidden(row: str, tmp_path: Path) -> None:
    [(record, derived)] = [
        (record, each) for record in (PERSON, BADGE) for each in record.derived if each.name == row
    ]
    with serving(memory(tmp_path), tmp_path, VAULT, key_ring=key_ring(tmp_path)) as served:
        box = served.client()
        plant(box)
        paths = ("records", "keys", "lookup", "record-counts", "members")
        fields = {name: "1" for name in derived.template.fields}
        statuses = {
            path: box.get(f"/{path}/{record.name}", params={"by": row, **fields}).status_code
            for path in paths
        }
        assert 403 in statuses.values() and set(statuses.values()) <= {400, 403, 404}, statuses


def test_a_remote_store_never_reads_what_it_may_write(tmp_path: Path) -> None:
    async def main(served: Served) -> None:
        async with RemoteStore(VAULT, served.url, served.token()) as store:
            entry = await store.entry(PERSON, id="p1")
            assert entry is not None and entry.record.pin == "" and entry.record.note == ""
            assert [each.record.aliases async for each in store.scan(PERSON)] == [[], [], []]
            patched = await store.update(PERSON, {"pin": "mine"}, id="p1")
            assert patched.record.pin == ""

    with serving(memory(tmp_path), tmp_path, VAULT, key_ring=key_ring(tmp_path)) as served:
        plant(served.client())
        asyncio.run(main(served))


class Guest(Struct, kw_only=True):
    id: str
    pin: str = ""


def test_a_row_that_is_declared_to_be_shown_is_read(tmp_path: Path) -> None:
    by_pin = Index("idx:guest:pin:{pin}:{id}", name="pin", shown=True)
    count = RecordCount("num:guest:pin:{pin}", name="count", shown=True)
    guest = Record(Guest, "guest:{id}", by_pin, count, private=("pin",))
    hotel = Schema("hotel", guest, space=Space("a person"))
    with serving(memory(tmp_path), tmp_path, hotel) as served:
        box = served.client()
        box.put("/records/guest/g1", json={"pin": "1234"})
        [item] = box.get("/records/guest?by=pin&pin=1234").json()["items"]
        assert item["value"] == {"id": "g1"}
        assert box.get("/record-counts/guest?by=count&pin=1234").json() == {"value": 1}
        assert box.get("/keys/guest?by=pin").json()["keys"] == ["idx:guest:pin:1234:g1"]


def test_an_unknown_member_is_answered_without_the_names_of_private_ones(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path, VAULT, key_ring=key_ring(tmp_path)) as served:
        for body in ({"pinn": "x"}, {"colour": "x"}):
            fields = served.client().put("/records/person/p1", json=body).json()["fields"]
            assert fields["known"] == ["email", "id", "limit", "name", "team"]
            assert fields.get("nearest") not in PERSON.private
