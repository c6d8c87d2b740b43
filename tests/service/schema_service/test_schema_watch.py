"""Changes of a served schema as Server-Sent Events, over a real connection."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.service.schema_service.support.events import watching
from tests.service.schema_service.support.served import Served, serving
from tests.support.engine_openers import ALL


@pytest.fixture
def box(served: Served, request: Any) -> Iterator[httpx.Client]:
    with served.client(f"t{abs(hash(request.node.name))}") as client:
        yield client


def put(box: httpx.Client, id: str, **members: Any) -> int:
    value = {"title": id, "slug": id, "secret": "s", **members}
    return int(box.put(f"/records/recipe/{id}", json=value).json()["revision"])


def test_a_watch_since_the_revision_of_a_list_misses_nothing(box: httpx.Client) -> None:
    put(box, "a")
    revision = box.get("/records/recipe").json()["revision"]
    second = put(box, "b", minutes=3)
    box.delete("/records/recipe/a")
    with watching(box, f"record=recipe&since={revision}") as events:
        first, gone = islice(events, 2)
    assert (first.name, first.id, first.data["fields"]) == ("put", str(second), {"id": "b"})
    assert first.data["value"]["minutes"] == 3
    assert "secret" not in first.data["value"]
    assert (gone.name, gone.data["fields"], "value" in gone.data) == ("gone", {"id": "a"}, False)


def test_only_the_last_event_of_a_commit_has_its_revision_as_id(box: httpx.Client) -> None:
    start = put(box, "first")
    operations = [
        {"op": "put", "record": "recipe", "value": {"id": id, "title": id, "slug": id}}
        for id in ("x", "y", "z")
    ]
    batch = box.post("/batch", json={"operations": operations}).json()["revision"]
    last = put(box, "later")
    with watching(box, f"record=recipe&since={start}") as events:
        seen = list(islice(events, 4))
    assert [event.id for event in seen] == [None, None, str(batch), str(last)]
    with watching(box, "record=recipe&since=0", last=batch) as events:
        resumed = next(events)
    assert resumed.data["fields"] == {"id": "later"}, "Last-Event-ID wins over since"


def test_a_watch_can_be_narrowed_by_leading_key_fields(box: httpx.Client) -> None:
    since = box.get("/records/draft").json()["revision"]
    for user in ("ann", "bob"):
        box.put(f"/records/draft/{user}/x", json={"text": user})
    with watching(box, f"record=draft&user=bob&since={since}") as events:
        assert next(events).data["value"] == {"text": "bob"}
    for query in ("record=nothing", "user=bob", "record=recipe&user=bob", "record=draft&name=x"):
        assert box.get(f"/watch?{query}").status_code == 400, query


def test_a_revision_in_the_future_is_expired(box: httpx.Client) -> None:
    now = put(box, "a")
    with watching(box, f"record=recipe&since={now + 1_000}") as events:
        assert [event.name for event in events] == ["expired"]


def test_counters_and_logs_are_watched_too(box: httpx.Client) -> None:
    since = put(box, "a")
    box.post("/counters/views/a", json={"by": 3})
    box.post("/logs/cooked", json={"recipe": "a", "stars": 2})
    with watching(box, f"record=views&since={since}") as events:
        assert next(events).data["value"] == 3
    with watching(box, f"record=cooked&recipe=a&since={since}") as events:
        assert next(events).data["value"]["stars"] == 2


def test_a_neighbor_sees_none_of_the_changes(served: Served, box: httpx.Client) -> None:
    with served.client("neighbor") as other:
        since = other.get("/records/recipe").json()["revision"]
        put(box, "a")
        mine = put(other, "b")
        with watching(other, f"record=recipe&since={since}") as events:
            assert next(events).data["revision"] == mine


def test_a_stream_ends_when_the_service_stops(tmp_path: Path) -> None:
    with serving(ALL["sqlite"](tmp_path), tmp_path) as served, served.client() as box:
        since = put(box, "a")
        put(box, "b")
        with watching(box, f"record=recipe&since={since}") as events:
            next(events)
            served.stop()
            assert list(events) == []
