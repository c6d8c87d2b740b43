"""Limits over HTTP: a full profile, and names of profiles that no token could have."""

import io
import json
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from urllib.parse import quote

import pytest

from keyhouse.engine import Engine
from keyhouse.store import Store, Transaction
from keyhouse_history.client import History
from keyhouse_history.limits import ASSETS_LISTED_MAX
from keyhouse_history.schema import ASSETS_IN_STATE, ENTRY, SCHEMAS
from keyhouse_history.transfer import import_lines
from systems.history.tests.conftest import CHOSEN, OPENERS
from systems.history.tests.support.service import Service, at, serving, token, viewing
from tests.support.bound_rows import bound


@pytest.fixture(scope="module", params=CHOSEN)
def small(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Service]:
    """A service whose profiles have three entries at most."""
    folder = tmp_path_factory.mktemp("history")
    with serving(OPENERS[request.param](folder), folder, entries_max=3) as served:
        yield served


def test_an_event_older_than_a_full_profile_is_said_not_to_be_stored(small: Service) -> None:
    viewer = small.viewer("older")
    for n in (5, 6, 7):
        viewer.put(f"a{n}", n)
    reply = viewer.put("old", 1)
    assert (reply["applied"], reply["stored"]) == (False, False)
    assert reply["entry"]["attr"]["assetId"] == "old"
    viewer.ask("GET", "/assets/old", status=404)
    assert "stored" not in viewer.put("a7", 1), "the stored entry is returned"
    event = {"assetId": "old", **viewing(1)}
    found = viewer.ask("POST", "/events", json={"events": [event]})
    assert found == {
        "results": [{"assetId": "old", "applied": False, "stored": False}],
        "applied": 0,
        "failed": 0,
    }
    with History(small.url, "older", token=token(small.clock, sub="older")) as history:
        stored = history.put("old", asset_type="movie", total_time=9, progress=1, at=at(1))
        assert not stored.applied and not stored.stored
        assert not history.send([event])[0].stored


def test_a_completion_older_than_a_full_profile_returns_the_entry_in_progress(
    small: Service,
) -> None:
    viewer = small.viewer("other state")
    newest = viewer.put("a", 9)["entry"]
    for n in (5, 6):
        viewer.put(f"a{n}", n)
    assert viewer.put("a", 1, 100) == {"entry": newest, "applied": False}


def test_the_oldest_entry_leaves_even_if_it_is_of_the_same_asset(small: Service) -> None:
    viewer = small.viewer("same asset")
    viewer.put("a", 1, 100)
    viewer.put("b", 5)
    viewer.put("c", 6)
    assert viewer.put("a", 7, 10, ext={"sport": "golf"})["applied"]
    assert [each["attr"]["state"] for each in viewer.get("a")] == ["IN_PROGRESS"]
    assert viewer.listed("asset/all") == ["a", "c", "b"]
    assert viewer.listed("sport/golf/watched") == []


def test_a_full_profile_of_one_time_does_not_depend_on_the_order_of_events(
    small: Service,
) -> None:
    assets = ["1", "10", "2", "a"]
    found = set()
    for number, order in enumerate(permutations(assets)):
        viewer = small.viewer(f"order-{number}")
        events = [{"assetId": asset, **viewing(1)} for asset in order]
        for event in events:
            viewer.ask("POST", "/events", json={"events": [event]})
        found.add(tuple(viewer.listed("asset/all")))
    assert len(found) == 1


NO_PROFILES = ["a\nb", "\x7f", "\x85", "x" * 129, "\t", "a\x00"]


@pytest.mark.parametrize("name", NO_PROFILES)
def test_no_scope_reaches_a_profile_that_no_token_can_name(small: Service, name: str) -> None:
    path = f"/profiles/{quote(name, safe='')}"
    with small.client(sub="jobs", scope="history.service") as jobs:
        for method, end, body in (
            ("PUT", "/assets/a", viewing(1)),
            ("POST", "/events", {"events": [{"assetId": "a", **viewing(1)}]}),
            ("GET", "/assets/a", None),
            ("GET", "/facets/asset/all", None),
            ("DELETE", "", None),
            ("POST", "/reindex", None),
        ):
            reply = jobs.request(method, path + end, json=body)
            assert reply.status_code == 400, (method, end, reply.text)
            assert reply.json()["code"] == "VALIDATION_ERROR"


def test_an_import_rejects_profiles_that_no_token_can_name(small: Service) -> None:
    names = [*NO_PROFILES, ".", "..", "", "fine"]
    lines = [{"profileId": name, "attr": {"assetId": "1", **viewing(1)}} for name in names]
    file = io.BytesIO(b"\n".join(json.dumps(line).encode() for line in lines))
    report = small.on_engine(lambda engine: import_lines(engine, file))
    assert [each.line for each in report.rejected] == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert "1 to 128 characters" in report.rejected[0].error
    assert report.applied == 1


def test_reindex_completes_a_list_that_was_truncated(tmp_path: Path) -> None:
    count = ASSETS_LISTED_MAX + 5

    async def fill(engine: Engine) -> None:
        store = Store(SCHEMAS[0], engine, "p")
        for start in range(0, count, 100):

            async def work(tx: Transaction, start: int = start) -> None:
                for n in range(start, min(start + 100, count)):
                    attr = {"assetId": f"a{n}", "state": "IN_PROGRESS", **viewing(n)}
                    await tx.put(ENTRY, ENTRY.json.accepted({"attr": attr}))

            await store.transact(work)

    async def listed(engine: Engine) -> tuple[int, bool]:
        row = await Store(SCHEMAS[0], engine, "p").row("IN_PROGRESS")
        assert row is not None
        assets = bound(ENTRY, ASSETS_IN_STATE)
        return len(assets.members(row.value)), assets.is_truncated(row.value)

    with serving(OPENERS["sqlite"](tmp_path), tmp_path) as service:
        service.on_engine(fill)
        assert service.on_engine(listed) == (ASSETS_LISTED_MAX, True)
        viewer = service.viewer("p")
        for n in range(10):
            viewer.ask("DELETE", f"/assets/a{n}", status=204)
        assert service.on_engine(listed) == (ASSETS_LISTED_MAX - 10, True)
        with service.client(sub="jobs", scope="history.service") as jobs:
            assert jobs.post("/profiles/p/reindex").json()["repaired"] == 1
            assert service.on_engine(listed) == (ASSETS_LISTED_MAX - 5, False)
            assert jobs.post("/profiles/p/reindex").json()["repaired"] == 0
