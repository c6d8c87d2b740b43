"""Hostile requests of one tenant, over HTTP and over NATS: nothing of its neighbor is seen or
changed.

Requests are made from a seed, which a failure shows: `TEST_SEED=… pytest …` repeats it.
"""

import asyncio
import json
import random
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from keyhouse.operations.table import VERBS
from tests.service.schema_service.support.nats_caller import Caller, called
from tests.service.schema_service.support.served import serving
from tests.sizes import size
from tests.support.engine_openers import memory
from tests.support.seeds import new_seed

CASES = size(2_000, 10_000, 10_000)
MARK = "the-neighbors-own"
NAMES = ["recipe", "draft", "note", "hidden", "rating", "job", "version", "bob", "views", "cooked"]
FIELDS = ["id", "user", "name", "recipe", "space", "tenant", "tag", "slug", "day", "minutes.from"]
ROWS = ["slug", "minutes", "tag", "secret", "tag_count", "tagged", "by-title", "none"]
TEXTS = [
    *("bob", "pie", "ann", "..", "../bob", "bob/recipe", "bob:recipe:pie", "recipe:pie", "*", ">"),
    *("meta:job:indexes", "idx:recipe:slug:pie", "a%3Ab", "\0", "{id}", "null", "\U0001f967", ""),
    *("a" * 300, "keyhouse.recipes.bob.get", "bob\n", "bob\r\nX-Tenant: bob", "' OR 1=1 --"),
]
TARGETS = [
    *[("records", name, 1) for name in ("recipe", "note", "hidden", "rating", "recipe", "note")],
    *[("records", name, 0) for name in ("recipe", "note", "draft")],
    *[("records", "draft", 2), ("counters", "views", 1), ("counters", "visits", 2)],
    *[(kind, "recipe", 0) for kind in ("lookup", "keys", "record-counts", "members")],
    *[("keys", "views", 0), ("sums", "visits", 0), ("logs", "cooked", 0)],
]
"""Paths that exist: kind, name, and the number of segments of an address."""

OPERATIONS = ["get", "list", "lookup", "create", "put", "patch", "delete", "add", "append"]
WHOLE = ["batch", "keys", "record_count", "members", "sum_of_days", "clear", "bob.get", ""]


class Attacker:
    """Makes hostile requests."""

    def __init__(self, seed: str, cursor: str) -> None:
        self._random = random.Random(seed)
        self._cursor = cursor

    def pick(self, options: list[Any]) -> Any:
        return self._random.choice(options)

    def text(self) -> str:
        return str(self.pick(TEXTS))

    def value(self, depth: int = 2) -> Any:
        plain: list[Any] = [None, True, 0, -1, 2**63, 1.5, self.text()]
        if depth:
            plain += [
                [self.value(depth - 1)],
                {self.pick(FIELDS): self.value(depth - 1)},
                {"id": self.text(), "title": "t", "slug": self.text(), "tags": [self.text()]},
            ]
        return self.pick(plain)

    def fields(self) -> dict[str, Any]:
        return {self.pick(FIELDS): self.value(1) for _ in range(self._random.randrange(3))}

    def operation(self) -> dict[str, Any]:
        """Return the members of an operation of a batch, or of a request over NATS."""
        found = {self.pick(["record", "counter", "log"]): self.pick(NAMES), "fields": self.fields()}
        options = {
            "value": self.value(),
            "by": self.pick([1, -1, self.pick(ROWS)]),
            "cursor": self._cursor,
            "limit": self.pick([1, 500, 0]),
            "days": 7,
            "space": "bob",
            "subject": self.pick(["keyhouse.changes.recipes.bob.x", "_INBOX_bob.x", "x"]),
            "expect": self.pick([None, 1]),
        }
        for name in self._random.sample(sorted(options), self._random.randrange(4)):
            found[name] = options[name]
        return found

    def http(self) -> tuple[str, str, Any, dict[str, str]]:
        """Return method, path, body and headers."""
        method = self.pick(["GET", "GET", "POST", "PUT", "PATCH", "DELETE"])
        kind, name, count = self.pick(TARGETS)
        if self._random.random() < 0.2:
            name, count = self.pick(NAMES), self._random.randrange(4)
        parts = [self.text() for _ in range(count)]
        path = "/".join([f"/{kind}/{name}", *(quote(each, safe="") for each in parts)])
        query = {"by": self.pick(ROWS), self.pick(FIELDS): self.text(), "cursor": self._cursor}
        query |= {"days": "7", "order": "desc", "space": "bob", "limit": "500"}
        chosen = self._random.sample(sorted(query), self._random.randrange(4))
        path += "?" + "&".join(f"{name}={quote(query[name], safe='')}" for name in chosen)
        if self._random.random() < 0.2:
            method, path = "POST", self.pick(["/batch", "/batch", "/clear"])
        operations = [
            {"op": self.pick(["put", "patch", "delete", "add", "append", "check"])}
            | self.operation()
        ]
        titled = {"title": self.text(), "slug": self.text(), "tags": [self.text()]}
        body = self.pick([{"operations": operations}, self.value(), self.text(), titled, {"by": 1}])
        headers = {"Keyhouse-Space": self.pick(["bob", "ann", "x"])}
        if self._random.random() < 0.8:
            headers = {}
        return method, path, None if method in ("GET", "DELETE") else body, headers

    def nats(self) -> tuple[str, dict[str, Any]]:
        """Return operation and body, mostly without members that the operation rejects."""
        body = self.operation()
        if self._random.random() < 0.3:
            body["operations"] = [{"op": self.pick(["put", "delete", "add"])} | self.operation()]
        operation = self.pick([*OPERATIONS, *WHOLE])
        verbs = [verb for verb in VERBS if verb.name == operation]
        if verbs and self._random.random() < 0.8:
            verb = self.pick(verbs)
            body |= {kind: self.pick(NAMES) for kind in verb.kinds[:1]}
            body = {name: value for name, value in body.items() if name in verb.members}
        return operation, body


class Connection:
    """One connection of a tenant: a client of few checks and little work for each request."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._http = HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        self._path = parts.path
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def request(
        self, method: str, path: str, body: Any, headers: dict[str, str]
    ) -> tuple[int, str]:
        sent = None if body is None else json.dumps(body)
        self._http.request(method, self._path + path, sent, self._headers | headers)
        response = self._http.getresponse()
        return response.status, response.read().decode()

    def close(self) -> None:
        self._http.close()


@pytest.mark.soak
def test_a_hostile_tenant_over_http(tmp_path: Path) -> None:
    seed = str(new_seed())
    with serving(memory(tmp_path), tmp_path) as served:
        ann, bob = Connection(served.url, served.token("ann")), served.client("bob")
        for id in ("pie", "bob", "recipe"):
            recipe = {"title": MARK, "slug": id, "note": MARK, "tags": [MARK, "bob"]}
            assert bob.put(f"/records/recipe/{id}", json=recipe).status_code == 201
            bob.put(f"/records/note/{id}", json=MARK)
            bob.post(f"/counters/views/{id}", json={"by": 7})
        cursor = bob.get("/records/recipe?limit=1").json()["cursor"]
        before = http_state(bob)
        attacker = Attacker(seed, cursor)
        statuses: dict[int, int] = {}
        for at in range(CASES):
            method, path, body, headers = attacker.http()
            status, text = ann.request(method, path, body, headers)
            story = (f"TEST_SEED={seed}", at, method, path, body, headers, text)
            assert status < 500 and MARK not in text, story
            statuses[status] = statuses.get(status, 0) + 1
        ann.close()
        assert http_state(bob) == before, f"TEST_SEED={seed}"
        assert statuses.keys() >= {200, 400, 403, 404, 422}, statuses
        assert statuses.keys() & {201, 204}, "something was written"


def http_state(client: httpx.Client) -> list[Any]:
    paths = ["/records/recipe", "/records/note", "/records/recipe?by=minutes", "/keys/views"]
    return [without_revision(client.get(path).json()) for path in paths]


def without_revision(page: dict[str, Any]) -> dict[str, Any]:
    """Return a page without its revision, which is that of the newest commit of all spaces."""
    return {name: part for name, part in page.items() if name != "revision"}


@pytest.mark.soak
def test_a_hostile_tenant_over_nats(tmp_path: Path) -> None:
    seed = str(new_seed())

    async def scenario() -> None:
        async with called("memory", tmp_path, rate_burst=1_000_000) as call:
            for id in ("pie", "bob", "recipe"):
                recipe = {"id": id, "title": MARK, "slug": id, "note": MARK, "tags": [MARK, "bob"]}
                assert (await call("put", {"record": "recipe", "value": recipe}, "bob"))["success"]
                await call("add", {"counter": "views", "fields": {"id": id}, "by": 7}, "bob")
            page = await call("list", {"record": "recipe", "limit": 1}, "bob")
            before = await nats_state(call)
            attacker = Attacker(seed, page["cursor"])
            outcomes: dict[str, int] = {}
            for at in range(CASES):
                operation, body = attacker.nats()
                story = (f"TEST_SEED={seed}", at, operation, body)
                reply = await attempt(call, operation, body)
                assert MARK not in str(reply), (story, reply)
                code = "ok" if reply.get("success") else str(reply.get("error_code"))
                assert code != "INTERNAL_ERROR", (story, reply)
                outcomes[code] = outcomes.get(code, 0) + 1
            assert await nats_state(call) == before, f"TEST_SEED={seed}"
            assert outcomes["ok"] > CASES // 100 and len(outcomes) > 3, outcomes

    asyncio.run(scenario())


async def attempt(call: Caller, operation: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a request; one that no service answers has no reply."""
    from nats.errors import NoRespondersError

    if not operation:
        return {"success": False, "error_code": "no subject"}
    try:
        reply: dict[str, Any] = await call(operation, body, "ann")
    except NoRespondersError:
        return {"success": False, "error_code": "no responders"}
    return reply


async def nats_state(call: Caller) -> list[Any]:
    requests: list[tuple[str, dict[str, Any]]] = [
        ("list", {"record": "recipe"}),
        ("keys", {"record": "recipe", "by": "tag"}),
        ("get", {"counter": "views", "fields": {"id": "pie"}}),
    ]
    return [without_revision(await call(*request, "bob")) for request in requests]
