"""The requests of the transcript: every operation, on every kind of record and derived row."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any, Final
from urllib.parse import quote

import msgspec

from keyhouse import Counter, First, Index, Log, Record, Schema, Space
from keyhouse.schema.index_names import derived_names
from tests.service.schema_service.support.recipes import BOX
from tests.service.schema_service.support.songs import SONGS


class Seat(msgspec.Struct, kw_only=True):
    seat: int
    guest: str


class Profile(msgspec.Struct, kw_only=True):
    name: str


class Clip(msgspec.Struct, kw_only=True):
    id: str = ""
    title: str


class Team(msgspec.Struct, kw_only=True):
    id: str


class Player(msgspec.Struct, kw_only=True):
    id: str
    team: str


BY_GUEST = Index("guest:{guest}:{seat:02d}", name="guest")
SEAT = Record(
    Seat,
    "seat:{seat:02d}",
    BY_GUEST,
    First("first:{guest}", value="seat", among=BY_GUEST, name="first"),
)
PROFILE = Record(Profile, "profile")
CLIP = Record(Clip, "clip:{id:ulid}")
HITS = Counter("hits")
SCHEMA: Final = Schema(
    "kinds",
    *BOX.records,
    SEAT,
    PROFILE,
    CLIP,
    HITS,
    *SONGS.records,
    operations=SONGS.operations,
    space=Space("a person"),
    doc="Every kind.",
)
CLOSED: Final = {
    "hidden": {"http": False},
    "note": {"nats": False},
    "draft": {"read_only": True},
    "views": {"read_only": True},
}

VALUES: Final[dict[str, tuple[dict[str, Any], Any, Any]]] = {
    "recipe": (
        {"id": "pie"},
        {
            "id": "pie",
            "title": "Pie & more",
            "slug": "apple-pie",
            "minutes": 30,
            "tags": ["sweet", "cake"],
            "steps": [{"text": "bake"}],
            "secret": "s",
        },
        {"minutes": 45, "tags": ["sweet"], "note": None},
    ),
    "draft": ({"user": "a/b", "name": "x y"}, {"text": "draft"}, {"text": "other"}),
    "plan": ({"day": "2026-01-31"}, {"day": "2026-01-31", "dish": "Soup"}, {"dish": "Pie"}),
    "note": ({"name": "n"}, "text", "changed"),
    "hidden": ({"name": "h"}, {"text": "hidden"}, {"text": "shown"}),
    "seat": ({"seat": 7}, {"seat": 7, "guest": "eve"}, {"guest": "adam"}),
    "profile": ({}, {"name": "Ann"}, {"name": "Anna"}),
    "clip": ({"id": "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, {"title": "Goal"}, {"title": "Own goal"}),
    "song": ({"id": "s"}, {"id": "s", "title": "Song"}, {"title": "Other"}),
    "points": ({"user": "u"}, {"user": "u", "points": 5}, {"points": 6}),
    "cooling": ({"user": "u"}, "cool", "cooler"),
}
"""The key fields, value and patch of a record, by its name."""

COUNTERS: Final = {
    "views": {"id": "pie"},
    "visits": {"id": "pie", "day": "2026-01-01"},
    "hits": {},
}
ALL: Final = "read write"


class Requests:
    """Makes lines for one service."""

    def __init__(self, to: str) -> None:
        self._to = to

    def http(self, request: str, body: Any = "", scopes: str = ALL, **headers: str) -> Any:
        line: dict[str, Any] = {"to": self._to, "http": request, "as": scopes}
        if body != "":
            line["body"] = body
        if headers:
            line["headers"] = {name.replace("_", "-"): value for name, value in headers.items()}
        return line

    def nats(self, operation: str, body: Any = "", space: str = "ann", **more: str) -> Any:
        line = {"to": self._to, "nats": f"keyhouse.kinds.{space}.{operation}", **more}
        return {**line, "body": body} if body != "" else line


def path(name: str, fields: dict[str, Any], kind: str = "records") -> str:
    parts = [quote(str(value), safe="") for value in fields.values()]
    return "/".join([f"/{kind}/{name}", *parts])


def filters(declared: Any, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield filters of a key: none, leading fields by equality, the next one by range or prefix."""
    yield {}
    names = [name for name in declared.template.fields if name in fields]
    for at, name in enumerate(names):
        leading = {each: fields[each] for each in names[:at]}
        value = fields[name]
        yield {**leading, name: value}
        yield {**leading, f"{name}.from": value}
        yield {**leading, f"{name}.prefix": str(value)[:1]}
        if at:
            yield {f"{name}.to": value}


def query(given: dict[str, Any]) -> str:
    pairs = [f"{quote(name)}={quote(str(value), safe='')}" for name, value in given.items()]
    return "?" + "&".join(pairs) if pairs else ""


def lists(record: Record[Any], fields: dict[str, Any], held: dict[str, Any]) -> Iterator[Any]:
    """Yield the parameters of lists: those of pages, and each derived row."""
    for each in filters(record, fields):
        yield None, each
    for by, row in derived_names(record).items():
        for each in filters(row, held):
            yield by, each
    if record.name not in ("recipe", "views"):
        return
    for more in (
        {"limit": 1},
        {"order": "desc"},
        {"order": "up"},
        {"limit": 0},
        {"limit": 501},
        {"limit": 1_001},
        {"limit": "x"},
        {"cursor": "x"},
        {"colour": "red"},
        {"by": "colour"},
        {"minute": 1},
    ):
        yield None, more


def held_fields(value: Any) -> dict[str, Any]:
    """Return the members of a value that key fields hold, with the fields of many values."""
    held = dict(value) if isinstance(value, dict) else {}
    return {**held, "tag": "sweet"}


def kinds() -> dict[str, list[Any]]:
    counters = [each for each in SCHEMA.records if isinstance(each, Counter)]
    logs = [each for each in SCHEMA.records if isinstance(each, Log)]
    others = [each for each in SCHEMA.records if each not in counters and each not in logs]
    return {"counter": counters, "log": logs, "record": others}


def record_requests(on: Requests, record: Record[Any]) -> Iterator[Any]:
    name = record.name
    if name == "rating":
        yield from read_requests(on, record, {"recipe": "pie"}, {})
        return
    fields, value, patch = VALUES[name]
    at = path(name, fields)
    target = {"record": name, "fields": fields}
    yield from (on.http(f"GET {at}"), on.nats("get", target))
    created = [value, {}, [], "{", {**value, "colour": 1} if isinstance(value, dict) else 5]
    for body in created:
        yield on.http(f"POST /records/{name}", body)
        yield on.http(f"POST /records/{name}{query(fields)}", body)
    yield on.nats("create", {"record": name, "fields": fields, "value": value})
    yield on.nats("create", {"record": name, "value": value})
    yield on.nats("create", {"record": name, "fields": fields})
    for scopes in ("read", "write", "", ALL):
        yield on.http(f"PUT {at}", value, scopes)
        yield on.http(f"GET {at}", scopes=scopes)
    for condition in ('"1"', "*", '"x"'):
        yield on.http(f"PUT {at}", value, if_match=condition)
        yield on.http(f"PUT {at}", value, if_none_match=condition)
        yield on.http(f"GET {at}", if_none_match=condition)
        yield on.http(f"PATCH {at}", patch, if_match=condition)
        yield on.http(f"DELETE {at}", if_match=condition)
        yield on.http(f"PUT {at}", value)
    for parameters in ("?ttl=60", "?ttl=-1", "?ttl=x", "?colour=1"):
        yield on.http(f"PUT {at}{parameters}", value)
    for body in (*created, {"id": "other", **patch} if isinstance(patch, dict) else patch):
        yield on.http(f"PUT {at}", body)
        yield on.http(f"PATCH {at}", body)
    for body in (value, patch, {"colour": 1}, None):
        yield on.http(f"PATCH {at}", body, content_type="application/merge-patch+json")
        yield on.nats("patch", {**target, "value": body})
    for more in ({}, {"expect": 1}, {"expect": None}, {"ttl": 60}, {"ttl": "x"}, {"colour": 1}):
        yield on.nats("put", {**target, "value": value, **more})
        yield on.nats("patch", {**target, "value": patch, **more})
    yield on.nats("put", {"record": name, "value": value})
    yield on.nats("put", target)
    yield from read_requests(on, record, fields, held_fields(value))
    yield on.nats("delete", {**target, "expect": 1})
    yield on.nats("delete", target)
    yield on.nats("delete", target)
    yield on.nats("delete", {"record": name, "fields": {"colour": 1}})
    yield on.nats("patch", {**target, "value": patch})
    yield on.http(f"PATCH {at}", patch)
    yield on.http(f"PUT {at}", value)
    yield on.http(f"DELETE {at}")
    yield on.http(f"DELETE {at}")
    yield on.http(f"PUT {at}", value)


def read_requests(
    on: Requests, record: Record[Any], fields: dict[str, Any], held: dict[str, Any]
) -> Iterator[Any]:
    name = record.name
    kind = "counter" if isinstance(record, Counter) else "log" if isinstance(record, Log) else ""
    kind = kind or "record"
    yield on.http(f"GET {path(name, fields, f'{kind}s')}")
    yield on.nats("get", {kind: name, "fields": fields})
    for by, given in lists(record, fields, held):
        named_by = {} if by is None else {"by": by}
        yield on.http(f"GET /{kind}s/{name}{query({**named_by, **given})}")
        yield on.http(f"GET /keys/{name}{query({**named_by, **given})}")
        paging = {each: given[each] for each in ("limit", "order", "cursor") if each in given}
        rest = {each: value for each, value in given.items() if each not in paging}
        body = {kind: name, **named_by, **paging, "fields": rest}
        yield from (on.nats("list", body), on.nats("keys", body))
    addresses = [fields, dict.fromkeys(fields, "2026-02-01"), fields]
    for body in (
        {"addresses": addresses},
        {"addresses": addresses, "unreadable": "skip"},
        {"addresses": addresses, "unreadable": "x"},
        {"addresses": []},
        {"addresses": [{"colour": 1}]},
        {},
    ):
        yield on.http(f"POST /get-many/{name}", body)
        yield on.nats("get_many", {kind: name, **body})
    rows = {"lookup": "lookup", "record_count": "record-counts", "members": "members"}
    named: dict[str, Any] = {**derived_names(record), "colour": record}
    for (operation, folder), (by, row) in product(rows.items(), named.items()):
        whole = {each: held[each] for each in row.template.fields if each in held}
        for given in (whole, {**whole, "colour": 1}, {each: "no" for each in whole}):
            yield on.http(f"GET /{folder}/{name}{query({'by': by, **given})}")
            yield on.nats(operation, {kind: name, "by": by, "fields": given})
    yield on.http(f"GET /watch{query({'record': name, 'since': 0})}")
    yield on.http(f"GET /watch{query({'record': name, 'since': 0, **fields})}")
    subject = "keyhouse.changes.kinds.ann.x"
    yield on.nats("watch", {kind: name, "fields": fields, "subject": subject, "since": 0})
    yield on.nats("watch", {"subject": subject, "stop": True})
    yield on.nats("watch", {kind: name, "fields": {"colour": 1}, "subject": subject})


def counter_requests(on: Requests, record: Counter) -> Iterator[Any]:
    name, fields = record.name, COUNTERS[record.name]
    at, target = path(name, fields, "counters"), {"counter": name, "fields": fields}
    for body in ({"by": 2}, {"by": "x"}, {}, {"by": 1, "to": 2}, {"by": 2**63}):
        for scopes in ("read", "write", ALL):
            yield on.http(f"POST {at}", body, scopes)
        yield on.nats("add", {**target, **body})
    for _ in range(2):
        yield on.http(f"POST {at}", {"by": 3}, idempotency_key="k")
        yield on.http(f"POST {at}", {"by": 3}, "write", idempotency_key="w")
        yield on.nats("add", {**target, "by": 3, "idempotency_key": "k"})
    yield on.http(f"POST {at}", {"by": 3}, idempotency_key="")
    yield from read_requests(on, record, fields, {})
    rest = {each: value for each, value in fields.items() if each != "day"}
    for days in (1, 3, 0, 10_000, "x"):
        yield on.http(f"GET /sums/{name}{query({'days': days, **rest})}")
        yield on.nats("sum_of_days", {"counter": name, "days": days, "fields": rest})
    yield on.http(f"GET /sums/{name}{query(rest)}")
    yield on.nats("sum_of_days", {"counter": name, "fields": rest})


def log_requests(on: Requests, record: Record[Any]) -> Iterator[Any]:
    name, event = record.name, {"recipe": "pie", "stars": 4}
    for body in (event, {}, {**event, "at": "x"}, {**event, "colour": 1}, "{", {"stars": 1}):
        for scopes in ("read", "write", ALL):
            yield on.http(f"POST /logs/{name}", body, scopes)
        yield on.nats("append", {"log": name, "value": {} if body == "{" else body})
    yield on.http(f"POST /logs/{name}?recipe=pie", {"stars": 1})
    yield on.nats("append", {"log": name, "fields": {"recipe": "pie"}, "value": {"stars": 1}})
    yield on.nats("append", {"log": name, "fields": {"at": "x"}, "value": event})
    yield on.nats("append", {"log": name})
    yield from read_requests(on, record, {"recipe": "pie"}, {})


def batch_requests(on: Requests) -> Iterator[Any]:
    recipe = {"record": "recipe", "fields": {"id": "soup"}}
    value = {"title": "Soup", "slug": "soup"}
    views, cooked = {"counter": "views", "fields": {"id": "soup"}}, {"log": "nothing"}
    event = {"value": {"recipe": "soup", "stars": 2}}
    operations: list[list[Any]] = [
        [],
        [{"op": "put", **recipe, "value": value}],
        [{"op": "patch", **recipe, "value": {"minutes": 3}}, {"op": "add", **views, "by": 2}],
        [{"op": "append", **cooked, **event}, {"op": "append", "log": "cooked", **event}],
        [{"op": "check", **recipe, "expect": 1}],
        [{"op": "check", **recipe}],
        [{"op": "check", **recipe, "expect": None}, {"op": "delete", **recipe}],
        [{"op": "add", **views, "by": 1}, {"op": "put", **recipe, "value": {}}],
        [{"op": "put", **recipe}],
        [{"op": "delete", **recipe, "value": 1}],
        [{"op": "delete", **recipe, "ttl": 1}],
        [{"op": "add", **views, "by": 1, "expect": 1}],
        [{"op": "add", **views, "value": 1}],
        [{"op": "put", **views, "value": 1}],
        [{"op": "sing"}],
        [{"op": "put", "record": "nothing", "value": 1}],
        [{"op": "put", "record": "hidden", "fields": {"name": "h"}, "value": {"text": "t"}}],
        [{"op": "put", "record": "note", "fields": {"name": "h"}, "value": "t"}],
        [{"op": "put", "record": "draft", "value": {"text": "t"}}],
        [{"op": "put", "record": "clip", "value": {"title": "t"}}],
        [{"op": "put", **recipe, "value": value, "ttl": 5}],
        [{"op": "patch", **recipe, "value": {"title": "New"}, "expect": 1}],
        [{"op": "delete", **recipe, "expect": 1}],
        [{"op": "delete", **recipe}, {"op": "delete", **recipe}],
        [5],
    ]
    for each in operations:
        for scopes in (ALL, "write", "read"):
            yield on.http("POST /batch", {"operations": each}, scopes)
        yield on.nats("batch", {"operations": each})
    repeated = {"operations": [{"op": "add", **views, "by": 1}]}
    for _ in range(2):
        yield on.http("POST /batch", repeated, idempotency_key="batch")
        yield on.nats("batch", {**repeated, "idempotency_key": "batch"})
    for body in ("", {}, {"operations": 5}, "[", {"operations": [], "colour": 1}):
        yield on.http("POST /batch", body)
        yield on.nats("batch", body)


def own_requests(on: Requests) -> Iterator[Any]:
    for each in SCHEMA.operations:
        for body in ("", {}, {"user": "u", "song": "s"}, {"user": 5}, "["):
            for scopes in (ALL, "write", "read"):
                yield on.http(f"POST /operations/{each.name}", body, scopes)
            yield {"advance": 40}
            yield on.nats(each.name, body)


def space_requests(on: Requests) -> Iterator[Any]:
    for scopes, space in product((ALL, f"{ALL} spaces"), ("ann", "bob", "a:b", "main")):
        yield on.http("GET /records/recipe", scopes=scopes, keyhouse_space=space)
        yield on.http("POST /records/recipe", {}, scopes, keyhouse_space=space)
    yield {**on.http("GET /records/recipe"), "as": ""}
    without = on.http("GET /records/recipe")
    del without["as"]
    yield without
    for each in ("/schema", "/openapi.json", "/records", "/records/nothing", "/sing", "/watch"):
        yield on.http(f"GET {each}")
    for method in ("OPTIONS", "HEAD", "DELETE", "PATCH"):
        yield on.http(f"{method} /records/recipe")
    yield on.http("GET /watch?record=nothing")
    yield on.http("GET /watch?record=hidden&since=0")
    yield on.http("GET /watch?record=recipe&colour=1")
    yield on.http("GET /watch?record=recipe&since=x")
    yield on.http("GET /watch?record=recipe&since=1000000")
    for operation in ("get", "list", "put", "watch", "sing", "clear"):
        for body in ("", {}, {"record": "nothing"}, {"record": 5}, {"record": "recipe"}, "[", "[]"):
            yield on.nats(operation, body, "bob")
    for space, reply in product(("ann", "a b", "x" * 65, "a!b", "main"), ("", "_INBOX_bob.x")):
        yield on.nats("list", {"record": "recipe"}, space)
        yield on.nats("list", {"record": "recipe"}, space, reply_to=reply)
        yield on.nats("put", {"record": "recipe"}, space, reply_to=reply)
        yield on.nats("watch", {"record": "recipe"}, space, reply_to=reply)
    yield on.nats("list", {"record": "recipe"}, reply_to="_INBOX_ann.x")
    yield on.nats("list", {"record": "recipe"}, reply_to="$SRV.x")
    subjects = ("_INBOX_bob.x", "keyhouse.changes.kinds.ann.nobody", "keyhouse.changes.kinds.bob.x")
    for subject in subjects:
        yield on.nats("watch", {"record": "recipe", "subject": subject, "since": 0})
    yield on.nats("watch", {"record": "recipe", "subject": 5})
    yield on.nats("watch", {"subject": "keyhouse.changes.kinds.ann.y", "stop": True})
    yield on.http("POST /clear", scopes="read")
    yield on.http("POST /clear")
    yield on.nats("clear")


def schema_requests(to: str) -> Iterator[Any]:
    on = Requests(to)
    of = kinds()
    for record in of["record"]:
        yield from record_requests(on, record)
    for counter in of["counter"]:
        if counter.name in COUNTERS:
            yield from counter_requests(on, counter)
    for log in of["log"]:
        yield from log_requests(on, log)
    yield from batch_requests(on)
    yield from own_requests(on)
    yield from space_requests(on)


def short_requests(to: str) -> Iterator[Any]:
    """Yield the first request of each route and subject: for other settings of a service."""
    seen: set[str] = set()
    for line in schema_requests(to):
        request = line.get("http") or line.get("nats") or ""
        target = json.dumps(line.get("body")).partition(",")[0] if "nats" in line else ""
        name = request.partition("?")[0] + target
        if line.get("as", ALL) == ALL and name not in seen and "headers" not in line:
            seen.add(name)
            yield line


ROSEY: Final[dict[str, list[Any]]] = {
    "set": [
        {"key": "a", "value": {"x": 1}},
        {"key": "n", "value": 5, "ttl": 60},
        {"key": "t", "value": "text"},
        {"key": "a"},
        {"value": 1},
        {"key": "a", "value": 1, "ttl": 0},
        {"key": "a b", "value": 1, "colour": 2},
        {"key": "", "value": 1},
        {"key": "k" * 300, "value": 1},
    ],
    "get": [{"key": "a"}, {"key": "a", "revision": True}, {"key": "no"}, {}, {"key": 5}],
    "mget": [{"keys": ["a", "n", "no", "a"]}, {"keys": []}, {}, {"keys": [5]}],
    "list": [{}, {"prefix": "a"}, {"limit": 1}, {"limit": 0}, {"limit": 1, "cursor": "a"}],
    "scan": [{}, {"prefix": "a"}, {"limit": 1}, {"limit": 0}, {"limit": 1, "cursor": "a"}],
    "count": [{}, {"prefix": "a"}, {"prefix": 5}],
    "incr": [{"key": "n"}, {"key": "n", "by": 4, "ttl": 9}, {"key": "a"}, {}, {"key": "new"}],
    "cas": [
        {"key": "a", "value": 2, "revision": 1},
        {"key": "a", "value": 2, "revision": None},
        {"key": "c", "value": 2, "revision": None},
        {"key": "a", "value": 2},
    ],
    "touch": [{"key": "a", "ttl": 5}, {"key": "a", "ttl": None}, {"key": "a"}, {"key": "no"}],
    "batch": [
        {"ops": [{"op": "set", "key": "b", "value": 1}, {"op": "incr", "key": "b", "by": 2}]},
        {"ops": [{"op": "cas", "key": "b", "value": 1, "revision": 1}]},
        {"ops": [{"op": "touch", "key": "b", "ttl": 9}, {"op": "delete", "key": "b"}]},
        {"ops": [{"op": "sing"}]},
        {"ops": [{"op": "set", "key": "b"}]},
        {"ops": [{"key": "b"}]},
        {"ops": []},
        {},
    ],
    "delete": [{"key": "a"}, {"key": "a"}, {}],
    "watch": [
        {"subject": "db.changes.trivia.x"},
        {"subject": "db.changes.trivia.x", "since": 1, "prefix": "a"},
        {"subject": "db.changes.trivia.x", "stop": True},
        {"subject": "db.changes.trivia.x", "stop": True},
        {"subject": "db.changes.trivia.nobody", "since": 1},
        {"subject": "db.changes.other.x"},
        {"subject": "db.changes.trivia.x", "prefix": "k" * 300},
        {},
    ],
    "sing": [{}],
}


def rosey_requests() -> Iterator[Any]:
    for prefix in ("db.kv", "rosey.db.kv"):
        for operation, bodies in ROSEY.items():
            for body in (*bodies, "", "[", "[]", "5"):
                yield {"to": "rosey", "nats": f"{prefix}.trivia.{operation}", "body": body}
    for operation, body in product(("set", "get", "list", "watch"), ({"key": "a", "value": 1},)):
        for plugin, reply in product(("trivia", "Trivia", "t" * 101), ("", "_INBOX_bob.x")):
            line = {"to": "rosey", "nats": f"db.kv.{plugin}.{operation}", "body": body}
            yield {**line, "reply_to": reply}
            yield line
    for reply in ("_INBOX_trivia.x", "db.kv.trivia.set", "db.changes.x", "old.kv.set", "free.x"):
        line = {"to": "rosey", "nats": "db.kv.trivia.get", "body": {"key": "a"}}
        yield {**line, "reply_to": reply}
    for operation in ("set", "get", "delete", "list", "incr"):
        for body in ({"key": "a", "value": 1, "ttl_seconds": 5}, {"key": "a"}, {}, "[", "5"):
            whole = {"plugin_name": "old", **body} if isinstance(body, dict) else body
            yield {"to": "rosey", "nats": f"old.kv.{operation}", "body": whole}
            yield {"to": "rosey", "nats": f"old.kv.{operation}", "body": body}


def requests() -> Iterator[Any]:
    yield from schema_requests("kinds")
    yield from short_requests("closed")
    yield from short_requests("fixed")
    yield from rosey_requests()
