"""Hostile requests of one tenant beside another: nothing of the neighbor is seen or changed."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.schema_service.support.served import Served, serving
from tests.sizes import size
from tests.support.engine_openers import memory

MARK = "the-neighbors-own"
TEXTS = [
    "bob",
    "pie",
    "..",
    "../bob",
    "bob/recipe",
    "bob:recipe:pie",
    "recipe:pie",
    "meta:job:indexes",
    "idx:recipe:slug:pie",
    "a%3Ab",
    "%00",
    "*",
    "{id}",
    "null",
    "\U0001f967",
    "a" * 300,
]
text = st.sampled_from(TEXTS) | st.text(min_size=1, max_size=8)
value = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(text, inner, max_size=2),
    max_leaves=4,
)
fields = st.dictionaries(
    st.sampled_from(["id", "user", "name", "recipe", "space", "ttl", "expect"]), value
)
operation = st.fixed_dictionaries(
    {"op": st.sampled_from(["put", "patch", "delete", "add", "append"])},
    optional={
        "record": st.sampled_from(["recipe", "draft", "note", "job", "version", "bob"]),
        "counter": st.just("views"),
        "log": st.just("cooked"),
        "fields": fields,
        "value": value | st.builds(lambda id: {"id": id, "title": id, "slug": id}, text),
        "by": st.integers(-2, 2),
    },
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("recipes")
    with serving(memory(folder), folder) as each:
        yield each


@st.composite
def requests(draw: Any, cursor: str) -> tuple[str, str, Any, dict[str, str]]:
    """Return method, path, body and headers of a request."""
    headers = draw(st.dictionaries(st.just("Keyhouse-Space"), st.sampled_from(["bob", "ann", "x"])))
    path = draw(
        st.sampled_from(["recipe", "draft", "note", "hidden", "rating", "job"]).flatmap(
            lambda name: st.lists(text, max_size=3).map(
                lambda parts: "/".join([f"/records/{name}", *(quote(p, safe="") for p in parts)])
            )
        )
        | text.map(lambda each: f"/counters/views/{quote(each, safe='')}")
        | st.just("/batch")
        | text.map(lambda each: f"/lookup/recipe?by=slug&slug={quote(each)}")
        | text.map(lambda each: f"/records/recipe?id.prefix={quote(each)}&cursor={cursor}")
        | st.just(f"/records/recipe?by=minutes&cursor={cursor}")
    )
    method = draw(st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE"]))
    body = draw(st.builds(lambda o: {"operations": o}, st.lists(operation, max_size=3)) | value)
    return method, path, None if method in ("GET", "DELETE") else body, headers


def test_a_hostile_tenant_sees_and_changes_nothing_of_its_neighbor(served: Served) -> None:
    ann, bob = served.client("ann"), served.client("bob")
    for id in ("pie", "bob", "recipe"):
        recipe = {"title": MARK, "slug": id, "note": MARK, "tags": [MARK]}
        assert bob.put(f"/records/recipe/{id}", json=recipe).status_code == 201
        bob.put(f"/records/draft/bob/{id}", json={"text": MARK})
        bob.post(f"/counters/views/{id}", json={"by": 7})
    cursor = bob.get("/records/recipe?limit=1").json()["cursor"]
    before = state(bob)

    @settings(
        max_examples=size(100, 300, 10_000),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(requests(cursor))
    def attack(request: tuple[str, str, Any, dict[str, str]]) -> None:
        method, path, body, headers = request
        response = ann.request(method, path, json=body, headers=headers)
        assert response.status_code < 500, (request, response.text)
        assert MARK not in response.text, request

    attack()
    assert state(bob) == before


def state(client: httpx.Client) -> list[Any]:
    paths = ["/records/recipe", "/records/draft", "/records/note", "/records/recipe?by=minutes"]
    found = [client.get(path).json()["items"] for path in paths]
    return [*found, *(client.get(f"/counters/views/{id}").json() for id in ("pie", "bob"))]
