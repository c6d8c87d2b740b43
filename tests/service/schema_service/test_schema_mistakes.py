"""Mistakes of a new client: the answer says what is known."""

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import Struct

from keyhouse import Clock, Counter, Index, Owner, Record, Schema, Space, open_engine, sliding
from keyhouse.engine import Engine
from keyhouse.errors import DeclarationError
from tests.service.schema_service.support.served import Served


class Show(Struct, kw_only=True):
    id: str
    title: str
    genre: str = "drama"
    cast: list[str] = []


class Episode(Struct, kw_only=True):
    show: str
    number: int


class Presence(Struct, kw_only=True):
    user: str


SHOW = Record(
    Show,
    "show:{id}",
    Index("idx:show:genre:{genre}:{id}"),
    Index("idx:show:cast:{actor}:{id}", each={"actor": "cast"}),
)
EPISODE = Record(Episode, "episode:{show}:{number:03d}", belongs_to=Owner(SHOW))
PRESENCE = Record(Presence, "presence:{user}", expiry=sliding(5))
VIEWS = Counter("views:{id}")
GUIDE = Schema("tv", SHOW, EPISODE, PRESENCE, VIEWS, space=Space("a home"))


async def opened(clock: Clock, *, changes_kept: int = 0) -> Engine:
    return await open_engine("memory:", clock=clock)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with Served(opened, tmp_path_factory.mktemp("tv"), GUIDE, rate_per_second=1e6) as running:
        yield running


def problem(served: Served, method: str, path: str, **options: Any) -> tuple[int, dict[str, Any]]:
    with served.client() as http:
        reply = http.request(method, path, **options)
    return reply.status_code, {"detail": reply.json()["detail"], **reply.json().get("fields", {})}


def test_an_unknown_record_names_the_known_ones(served: Served) -> None:
    status, fields = problem(served, "GET", "/records/shows")
    assert status == 404
    assert fields == {
        "detail": "No route has this path.",
        "segment": "shows",
        "known": ["show", "episode", "presence"],
        "nearest": "show",
        "docs": "/tv/docs",
    }


def test_a_counter_is_not_a_record(served: Served) -> None:
    status, fields = problem(served, "PUT", "/records/views/dark", json=3)
    assert (status, fields["known"]) == (404, ["show", "episode", "presence"])
    status, fields = problem(served, "GET", "/counters/view/dark")
    assert (status, fields["nearest"]) == (404, "views")


def test_an_address_with_too_few_or_too_many_segments_names_the_path(served: Served) -> None:
    for path in ("/records/episode/dark", "/records/episode/dark/1/2"):
        status, fields = problem(served, "GET", path)
        assert (status, fields["paths"]) == (404, ["/tv/records/episode/{show}/{number}"])


def test_an_unknown_folder_and_an_unknown_service(served: Served) -> None:
    status, fields = problem(served, "GET", "/record/show/dark")
    assert (status, fields["nearest"]) == (404, "records")
    with served.client() as http:
        reply = http.get(str(http.base_url).replace("/tv", "/tvs") + "records/show")
    assert reply.status_code == 404
    assert reply.json()["fields"]["known"] == ["tv"]


def test_a_path_that_no_route_has_costs_no_more_than_a_record(served: Served) -> None:
    """By the CPU time of this process, in which both client and service run."""
    with served.client() as http:
        http.put("/records/show/dark", json={"title": "Dark"}).raise_for_status()

        def seconds(path: str) -> float:
            started = time.process_time()
            for _ in range(100):
                http.get(path)
            return time.process_time() - started

        seconds("/records/show/dark")
        found, absent = (
            min(each)
            for each in zip(
                *(
                    (seconds("/records/show/dark"), seconds("/records/shows/dark"))
                    for _ in range(3)
                ),
                strict=True,
            )
        )
        assert absent < 2 * found


@pytest.mark.parametrize(
    ("path", "name", "nearest", "known"),
    [
        ("/records/show?by=gerne", "by", "genre", ["genre", "cast"]),
        ("/watch?record=shw", "record", "show", ["show", "episode", "presence", "views"]),
        ("/records/show?order=dsc", "order", "desc", ["asc", "desc"]),
    ],
)
def test_an_invalid_choice_names_the_known_values(
    served: Served, path: str, name: str, nearest: str, known: list[str]
) -> None:
    status, fields = problem(served, "GET", path)
    assert (status, fields["detail"]) == (400, "Invalid parameter.")
    assert (fields["name"], fields["nearest"], fields["known"]) == (name, nearest, known)


def test_a_watch_without_a_record_names_the_known_ones(served: Served) -> None:
    status, fields = problem(served, "GET", "/watch?since=0")
    assert status == 400
    assert fields == {
        "detail": "Missing parameter: `record`.",
        "name": "record",
        "known": ["show", "episode", "presence", "views"],
    }


def test_an_unknown_member_names_the_nearest(served: Served) -> None:
    status, fields = problem(served, "PUT", "/records/show/dark", json={"titel": "Dark"})
    assert (status, fields["member"], fields["nearest"]) == (422, "titel", "title")
    assert fields["known"] == ["cast", "genre", "id", "title"]


def test_a_ttl_of_a_record_that_does_not_expire_says_what_it_needs(served: Served) -> None:
    value = {"title": "Dark"}
    status, fields = problem(served, "PUT", "/records/show/dark?ttl=5", json=value)
    assert (status, fields["record"]) == (400, "show")
    assert "expiry=per_write()" in fields["detail"]
    status, fields = problem(served, "PUT", "/records/show/dark?tt=5", json=value)
    assert (status, fields["detail"], fields["name"]) == (400, "Unknown parameter.", "tt")
    with served.client() as http:
        assert http.put("/records/presence/ann?ttl=5", json={}).status_code == 201


def test_a_field_of_a_list_without_each_names_each() -> None:
    with pytest.raises(DeclarationError, match=re.escape('write each={"actor": "cast"}')):
        Record(Show, "show:{id}", Index("idx:show:cast:{actor}:{id}"))
    with pytest.raises(DeclarationError, match="must hold the record's key field") as failed:
        Record(Show, "show:{id}", Index("idx:show:genre:{genre}"))
    assert "each" not in str(failed.value)


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("PUT", "/records/show/a", {"id": "a", "title": "A", "genre": "\0"}, "genre"),
        ("PUT", "/records/show/a", {"id": "a", "title": "A", "cast": ["b", "\0"]}, "cast"),
        ("PUT", "/records/episode/none/1", {"show": "none", "number": 1}, "none"),
        ("PUT", "/records/episode/none/1000", {"show": "none", "number": 1000}, "number"),
        ("PUT", "/records/show/a", {"id": "b", "title": "A"}, "id"),
    ],
)
def test_what_cannot_be_stored_is_named_by_its_member_and_not_by_a_key(
    served: Served, method: str, path: str, body: Any, named: str
) -> None:
    """Errors had the templates of keys, which a client does not know."""
    status, fields = problem(served, method, path, json=body)
    assert status in (400, 409, 422) and named in str(fields)
    assert not re.search(r"\{\w+(:\w+)?\}|idx:|episode:|show:", str(fields)), fields


def test_a_misspelled_parameter_has_the_nearest(served: Served) -> None:
    """`?limt=3` reported that no index serves the request."""
    status, found = problem(served, "GET", "/records/show?limt=3")
    assert status == 400 and found["detail"] == "Unknown parameter." and found["nearest"] == "limit"
    assert problem(served, "GET", "/records/show?genr=drama&by=genre")[1]["nearest"] == "genre"
    assert "indexes" in problem(served, "GET", "/records/show?colour=red")[1]


OPERATION = {"op": "delete", "record": "show", "fields": {"id": "lost"}}


@pytest.mark.parametrize(
    ("malformed", "expected"),
    [
        ({**OPERATION, "revision": None}, {"member": "revision"}),
        ({**OPERATION, "expct": None}, {"member": "expct", "nearest": "expect"}),
        ({**OPERATION, "op": "drop"}, {"value": "drop"}),
        ({**OPERATION, "op": "delet"}, {"value": "delet", "nearest": "delete"}),
        ({"record": "show"}, {}),
        ("delete", {}),
        ({**OPERATION, "record": "shows"}, {"name": "shows", "nearest": "show"}),
        ({**OPERATION, "fields": {"idd": "x"}}, {"field": "idd", "nearest": "id"}),
    ],
)
def test_a_malformed_operation_of_a_batch_is_named_by_its_index(
    served: Served, malformed: Any, expected: dict[str, Any]
) -> None:
    """`{"op": "drop"}` had its index in a text alone; an unknown member had no known ones."""
    body = {"operations": [OPERATION, OPERATION, malformed]}
    status, found = problem(served, "POST", "/batch", json=body)
    assert status in (400, 404, 422) and found["operation"] == 2
    assert found | expected == found
    if "member" in expected:
        assert {"expect", "ttl", "op"} <= set(found["known"])


def test_an_unknown_member_beside_the_operations_is_named(served: Served) -> None:
    status, found = problem(served, "POST", "/batch", json={"operation": []})
    assert status == 422 and found["nearest"] == "operations" == found["known"][0]
