"""Every rule of the API over HTTP: the same answers on SQLite, PostgreSQL and DynamoDB."""

from typing import Any

import pytest

from keyhouse.store import Store, verify
from keyhouse_history.schema import SCHEMAS
from systems.history.tests.support.service import EXT, Service, Viewer, at, ids, viewing

# Events


def test_an_event_is_stored_and_returned(viewer: Viewer) -> None:
    body = {
        "assetType": "tv-episode",
        "totalTime": 6604,
        "progress": 2518,
        "updateTime": "2021-01-28T00:37:42.1559+01:00",
        "ext": EXT,
    }
    stored = viewer.ask("PUT", "/assets/1981", json=body)
    attr = {
        "assetId": "1981",
        "assetType": "tv-episode",
        "totalTime": 6604,
        "state": "IN_PROGRESS",
        "progress": 2518,
        "updateTime": "2021-01-27T23:37:42.155Z",
        "progressPercentage": 38.13,
    }
    assert stored == {"entry": {"attr": attr, "ext": EXT}, "applied": True}
    assert viewer.get("1981") == [stored["entry"]]


def test_completing_moves_the_entry_and_notes_the_time(viewer: Viewer) -> None:
    viewer.put("a", 1)
    done = viewer.put("a", 2, 99)
    assert done["entry"]["attr"]["state"] == "COMPLETED"
    assert done["entry"]["m"] == {"timestamps": [at(2)]}
    assert viewer.get("a") == [done["entry"]]
    assert viewer.listed("asset/resume") == []
    again = viewer.put("a", 3, 10)["entry"]
    assert viewer.get("a") == [again, done["entry"]]
    assert viewer.put("a", 4, 100)["entry"]["m"] == {"timestamps": [at(2), at(4)]}


@pytest.mark.parametrize(
    ("progress", "total", "state", "kept", "percentage"),
    [
        (95, 100, "COMPLETED", 95, 95),
        (94.999, 100, "IN_PROGRESS", 94.999, 95),
        (150, 100, "COMPLETED", 100, 100),
        (-5, 100, "IN_PROGRESS", 0, 0),
        (7, 0, "IN_PROGRESS", 0, 0),
        (1, 3, "IN_PROGRESS", 1, 33.33),
        (50, 100, "IN_PROGRESS", 50, 50),
    ],
)
def test_progress_decides_the_state(
    viewer: Viewer, progress: float, total: float, state: str, kept: float, percentage: float
) -> None:
    attr = viewer.put("a", 1, progress, totalTime=total)["entry"]["attr"]
    assert (attr["state"], attr["progress"], attr["progressPercentage"]) == (
        state,
        kept,
        percentage,
    )
    assert isinstance(attr["progressPercentage"], int) == (percentage == int(percentage))


def test_a_state_that_is_sent_counts(viewer: Viewer) -> None:
    assert viewer.put("a", 1, 10, state="COMPLETED")["entry"]["attr"]["state"] == "COMPLETED"
    assert viewer.put("b", 1, 99, state="IN_PROGRESS")["entry"]["attr"]["state"] == "IN_PROGRESS"


def test_a_stale_event_returns_the_stored_entry(viewer: Viewer) -> None:
    newer = viewer.put("a", 5, 40)["entry"]
    assert viewer.put("a", 4, 90) == {"entry": newer, "applied": False}
    assert viewer.put("a", 5, 40) == {"entry": newer, "applied": False}
    done = viewer.put("a", 6, 100)["entry"]
    assert viewer.put("a", 6, 50) == {"entry": done, "applied": False}
    late = viewer.put("a", 3, 100)
    assert late["applied"] and late["entry"]["m"]["timestamps"] == [at(3), at(6)]
    assert late["entry"]["attr"] == done["attr"]
    assert viewer.put("a", 3, 100)["applied"] is False


def test_of_one_time_completed_wins_then_the_larger_progress(viewer: Viewer) -> None:
    viewer.put("a", 1, 40)
    assert viewer.put("a", 1, 30)["applied"] is False
    assert viewer.put("a", 1, 50)["applied"] is True
    assert viewer.put("a", 1, 20, state="COMPLETED")["applied"] is True
    assert [entry["attr"]["state"] for entry in viewer.get("a")] == ["COMPLETED"]


def test_an_asset_that_changes_its_show_leaves_the_old_one_in_both_states(viewer: Viewer) -> None:
    viewer.put("a", 1, 100, ext=EXT)
    viewer.put("a", 2, 10, ext=EXT | {"showCategoryId": "9", "team-ids": "1"})
    assert [entry["ext"]["showCategoryId"] for entry in viewer.get("a")] == ["9", "9"]
    assert viewer.listed("show/1446/all") == []
    assert viewer.listed("show/9/watched") == ["a"] == viewer.listed("show/9/resume")
    assert viewer.listed("sport/cricket/all?series=4&team=60091") == []
    assert viewer.listed("sport/cricket/all?series=4&team=1") == ["a"]


def test_ext_left_out_is_kept_and_an_empty_one_clears(viewer: Viewer) -> None:
    viewer.put("a", 1, ext={"sport": "golf", "mood": ["good", 1, None]})
    kept = {"sport": "golf", "mood": ["good", 1, None]}
    assert viewer.put("a", 2)["entry"]["ext"] == kept
    assert viewer.put("a", 3, 100)["entry"]["ext"] == kept
    assert viewer.put("a", 4, ext={})["entry"]["ext"] == {}
    assert viewer.listed("sport/golf/all") == []


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"updateTime": "2026-01-18T12:00:00"}, 400),
        ({"updateTime": "yesterday"}, 400),
        ({"updateTime": "2026-02-30T12:00:00Z"}, 400),
        ({"updateTime": "1969-12-31T23:59:59Z"}, 400),
        ({"ext": {"team-ids": ",".join(map(str, range(31)))}}, 400),
        ({"ext": {"team-ids": ",".join(["7", *map(str, range(30))])}}, 200),
        ({"updateTime": 5}, 422),
        ({"progress": "half"}, 422),
        ({"totalTime": -1}, 422),
        ({"state": "DONE"}, 422),
        ({"state": "In progress"}, 422),
        ({"totalTime": "PT1H50M4S"}, 422),
        ({"assetType": None}, 422),
        ({"ext": {"sport": 5}}, 422),
        ({"ext": {"sport": "x" * 2_000}}, 422),
        ({"ext": []}, 422),
    ],
)
def test_a_wrong_body_is_rejected_and_changes_nothing(
    viewer: Viewer, change: dict[str, Any], status: int
) -> None:
    found = viewer.ask("PUT", "/assets/a", json=viewing(1) | change, status=status)
    if status != 200:
        assert found["code"] == "VALIDATION_ERROR" and found["status"] == status
        viewer.ask("GET", "/assets/a", status=404)


def test_a_complete_change_of_thirty_teams_is_one_commit(viewer: Viewer, service: Service) -> None:
    def teams(start: int) -> dict[str, str]:
        return EXT | {"team-ids": ",".join(str(n) for n in range(start, start + 30))}

    viewer.put("a", 1, 100, ext=teams(0))
    viewer.put("a", 2, 10, ext=teams(0))
    changed = teams(100) | {"showCategoryId": "2", "sport": "golf", "series-id": "5"}
    assert viewer.put("a", 3, 20, ext=changed)["applied"]
    assert viewer.listed("sport/golf/all?series=5&team=129") == ["a"]
    assert viewer.listed("sport/cricket/all?series=4&team=0") == []
    assert verified(service, viewer) == []


# Many events


def test_events_are_taken_in_order_of_time_and_fail_alone(viewer: Viewer) -> None:
    events = [
        {"assetId": "a", **viewing(2, 100)},
        {"assetId": "a", **viewing(1, 50)},
        {"assetId": "b", **viewing(1) | {"updateTime": "no"}},
        {"assetId": "c", **viewing(1) | {"progress": []}},
        {"assetId": "..", **viewing(1)},
        7,
        {"assetId": "a", **viewing(2, 100)},
    ]
    found = viewer.ask("POST", "/events", json={"events": events})
    assert found["applied"] == 2 and found["failed"] == 4
    results = found["results"]
    assert [result["assetId"] for result in results] == ["a", "a", "b", "c", "..", None, "a"]
    assert [result.get("applied") for result in results] == [
        True,
        True,
        None,
        None,
        None,
        None,
        False,
    ]
    assert all(result["error"]["code"] == "VALIDATION_ERROR" for result in results[2:6])
    assert viewer.listed("asset/all") == ["a"]


@pytest.mark.parametrize("events", [[], [{}] * 101, {}, None])
def test_one_to_a_hundred_events_are_taken(viewer: Viewer, events: Any) -> None:
    viewer.ask("POST", "/events", json={"events": events}, status=422)


def test_a_hundred_events_are_stored(viewer: Viewer) -> None:
    events = [{"assetId": f"a{n:03d}", **viewing(n)} for n in range(100)]
    assert viewer.ask("POST", "/events", json={"events": events})["applied"] == 100
    assert viewer.listed("asset/all?limit=3") == ["a099", "a098", "a097"]


# Facets


def test_assets_are_listed_newest_first_and_ties_by_id(viewer: Viewer) -> None:
    for asset, second, progress in (("b", 1, 5), ("a", 1, 5), ("c", 3, 100), ("d", 2, 5)):
        viewer.put(asset, second, progress)
    viewer.put("c", 4, 10)
    assert viewer.listed("asset/all") == ["c", "d", "a", "b"]
    assert viewer.listed("asset/resume") == ["c", "d", "a", "b"]
    assert viewer.listed("asset/watched") == ["c"]
    [first, *_] = viewer.facet("asset/all")["entries"]
    assert first["attr"]["state"] == "IN_PROGRESS"


@pytest.mark.parametrize("kind", ["all", "resume", "watched"])
def test_pages_list_every_entry_once(viewer: Viewer, kind: str) -> None:
    events = [{"assetId": f"a{n}", **viewing(n, 100 if n % 3 else 10)} for n in range(20)]
    events += [{"assetId": f"a{n}", **viewing(30 + n, 10)} for n in range(0, 20, 4)]
    viewer.ask("POST", "/events", json={"events": events})
    for facet in (f"asset/{kind}?limit=500", f"asset/{kind}?assets=a1,a2,a4&assets=a8&limit=500"):
        whole = viewer.listed(facet)
        seen: list[str] = []
        path = facet.replace("500", "2")
        page = viewer.facet(path)
        seen += ids(page["entries"])
        while "cursor" in page:
            page = viewer.facet(f"{path}&cursor={page['cursor']}")
            seen += ids(page["entries"])
        assert seen == whole and len(set(seen)) == len(seen)
        assert whole


def test_some_assets_are_chosen_by_a_list_or_repeatedly(viewer: Viewer) -> None:
    for n, asset in enumerate(("a", "b", "c,d", "e")):
        viewer.put(asset, n)
    assert viewer.listed("asset/all?assets=a,b") == ["b", "a"]
    assert viewer.listed("asset/all?assets=a&assets=c%2Cd&assets=none") == ["c,d", "a"]
    assert viewer.listed("asset/watched?assets=a") == []


def test_a_show_has_its_current_asset_and_counts(viewer: Viewer) -> None:
    one, two, other = (
        EXT,
        EXT | {"seasonCategoryId": "1451"},
        EXT | {"showCategoryId": "14460"},
    )
    viewer.put("e1", 1, 100, ext=one)
    viewer.put("e2", 2, 50, ext=one)
    viewer.put("e3", 3, 50, ext=two)
    viewer.put("x", 9, 50, ext=other)
    show = viewer.facet("show/1446/all?limit=2")
    assert ids(show["entries"]) == ["e3", "e2"]
    assert show["counts"] == {"inProgress": 2, "completed": 1}
    assert show["current"]["attr"]["assetId"] == "e3"
    rest = viewer.facet(f"show/1446/all?limit=2&cursor={show['cursor']}")
    assert ids(rest["entries"]) == ["e1"] and "cursor" not in rest
    assert rest["counts"] == show["counts"] and rest["current"] == show["current"]
    assert viewer.listed("show/1446/all?season=1450") == ["e2", "e1"]
    assert viewer.listed("show/1446/all?season=1450&season=1451") == ["e3", "e2", "e1"]
    assert viewer.listed("show/1446/watched") == ["e1"]
    viewer.put("e4", 4, 100, ext=two)
    assert viewer.facet("show/1446/resume")["current"]["attr"]["assetId"] == "e4"
    absent = viewer.facet("show/none/all")
    assert absent == {
        "entries": [],
        "current": None,
        "counts": {"inProgress": 0, "completed": 0},
    }


def test_with_none_in_progress_the_newest_completed_is_current(viewer: Viewer) -> None:
    viewer.put("e1", 1, 100, ext=EXT)
    viewer.put("e2", 2, 100, ext=EXT)
    assert viewer.facet("show/1446/resume")["current"]["attr"]["assetId"] == "e2"


def test_a_sport_is_narrowed_by_series_and_team(viewer: Viewer) -> None:
    viewer.put("a", 1, ext=EXT)
    viewer.put("b", 2, 100, ext=EXT | {"team-ids": " 60092 ,60092"})
    viewer.put("c", 3, ext=EXT | {"series-id": "5"})
    sport = viewer.facet("sport/cricket/all")
    assert ids(sport["entries"]) == ["c", "b", "a"]
    assert sport["counts"] == {"inProgress": 2, "completed": 1} and "current" not in sport
    assert viewer.listed("sport/cricket/all?series=4") == ["b", "a"]
    assert viewer.listed("sport/cricket/all?series=4&team=60092") == ["b", "a"]
    assert viewer.listed("sport/cricket/resume?series=4&team=60092") == ["a"]
    assert viewer.listed("sport/cricket/all?series=4&team=60091") == ["a"]
    viewer.facet("sport/cricket/all?team=60091", status=400)


def test_a_slash_in_a_segment_belongs_to_the_value(viewer: Viewer) -> None:
    viewer.put("a/b|c", 1, ext={"showCategoryId": "1/2", "seasonCategoryId": "3"})
    viewer.put("d", 1, ext={"showCategoryId": "1", "seasonCategoryId": "2"})
    assert viewer.listed("show/1%2F2/all") == ["a/b|c"]
    assert viewer.listed("show/1/all") == ["d"]
    assert ids(viewer.get("a/b|c")) == ["a/b|c"]


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "cursor=x", "cursor=!", "other=1"]
)
@pytest.mark.parametrize("facet", ["asset/all", "show/1446/all", "sport/cricket/all"])
def test_a_wrong_limit_or_cursor_is_400(viewer: Viewer, facet: str, query: str) -> None:
    viewer.facet(f"{facet}?{query}", status=400)


def test_a_cursor_belongs_to_its_facet(viewer: Viewer) -> None:
    viewer.put("a", 1)
    viewer.put("b", 2)
    cursor = viewer.facet("asset/all?limit=1")["cursor"]
    viewer.facet(f"asset/watched?cursor={cursor}", status=400)


def test_an_unknown_type_is_404(viewer: Viewer) -> None:
    viewer.facet("asset/seen", status=404)
    viewer.ask("GET", "/assets/none", status=404)
    viewer.ask("GET", f"/assets/{'x' * 2_000}", status=404)


# Deleting


def test_deleting_an_asset_deletes_both_states(viewer: Viewer) -> None:
    viewer.put("a", 1, 100, ext=EXT)
    viewer.put("a", 2, 10)
    viewer.ask("DELETE", "/assets/a", status=204)
    viewer.ask("DELETE", "/assets/a", status=204)
    viewer.ask("DELETE", f"/assets/{'x' * 2_000}", status=204)
    viewer.ask("GET", "/assets/a", status=404)
    assert viewer.listed("show/1446/all") == [] == viewer.listed("asset/all")


def test_a_profile_is_deleted_and_can_be_used_again(viewer: Viewer, service: Service) -> None:
    events = [{"assetId": f"a{n}", **viewing(n, ext=EXT)} for n in range(30)]
    viewer.ask("POST", "/events", json={"events": events})
    viewer.ask("DELETE", "", status=204)
    viewer.ask("DELETE", "", status=204)
    assert viewer.listed("asset/all") == []

    async def rows(engine: Any) -> list[Any]:
        return [row async for row in Store(SCHEMAS[0], engine, profile_of(viewer)).row_scan()]

    assert service.on_engine(rows) == []
    assert viewer.put("a1", 1)["applied"]


# Access


def test_another_profile_is_forbidden_whether_or_not_it_exists(
    viewer: Viewer, service: Service
) -> None:
    viewer.put("a", 1)
    with service.client(profileId="someone") as other:
        for path in (viewer.path, "/profiles/no-such-profile"):
            for method, at_path in (
                ("GET", "/facets/asset/all"),
                ("GET", "/assets/a"),
                ("DELETE", "/assets/a"),
                ("DELETE", ""),
                ("GET", "/watch"),
            ):
                response = other.request(method, path + at_path)
                assert response.status_code == 403
                assert response.json()["detail"] == "The token does not reach this tenant."
            assert other.put(f"{path}/assets/a", json=viewing(9)).status_code == 403
    assert viewer.listed("asset/all") == ["a"]


def test_claims_decide_which_profiles_are_reached(viewer: Viewer, service: Service) -> None:
    viewer.put("a", 1)
    name, path = profile_of(viewer), f"{viewer.path}/facets/asset/all"
    cases: list[tuple[dict[str, Any], int]] = [
        ({"sub": name}, 200),
        ({"profileId": "x", "sub": name}, 403),
        ({"profileId": "x", "profiles": ["y", name]}, 200),
        ({"profileId": "x", "profiles": name}, 401),
        ({"sub": "x", "scope": "history.service"}, 200),
        ({"sub": name, "scope": "write"}, 403),
        ({"sub": name, "scope": "read"}, 200),
        ({}, 401),
    ]
    for claims, status in cases:
        with service.client(**claims) as client:
            assert client.get(path).status_code == status, claims
    with service.client(sub=name, scope="read") as reader:
        assert reader.put(f"{viewer.path}/assets/a", json=viewing(9)).status_code == 403


def test_reindex_repairs_rows_that_are_missing(viewer: Viewer, service: Service) -> None:
    viewer.put("a", 1, ext=EXT)
    viewer.put("b", 2, 100, ext=EXT)
    viewer.ask("POST", "/reindex", status=403)

    async def keys(engine: Any) -> list[str]:
        store = Store(SCHEMAS[0], engine, profile_of(viewer))
        return [row.key async for row in store.row_scan()]

    async def lose(engine: Any) -> None:
        store = Store(SCHEMAS[0], engine, profile_of(viewer))
        lost = [key for key in stored if not key.startswith(("IN_PROGRESS|", "COMPLETED|"))]

        async def work(tx: Any) -> None:
            for key in lost:
                tx.write(key, None)

        await store.transact(work)

    stored = service.on_engine(keys)
    service.on_engine(lose)
    assert viewer.listed("asset/all") == []
    with service.client(sub="jobs", scope="history.service") as jobs:
        done = jobs.post(f"{viewer.path}/reindex").json()
        assert done["checked"] >= 2 and done["repaired"] >= len(stored) - 2
        assert jobs.post(f"{viewer.path}/reindex").json()["repaired"] == 0
    assert service.on_engine(keys) == stored
    assert viewer.listed("asset/all") == ["b", "a"] == viewer.listed("show/1446/all")


def test_changes_are_streamed_and_resumed(viewer: Viewer) -> None:
    viewer.put("a", 1)
    with viewer.http.stream("GET", f"{viewer.path}/watch?since=0") as stream:
        assert stream.headers["content-type"] == "text/event-stream"
        event = read_event(stream.iter_lines())
        assert event["event"] == "put" and '"key":"IN_PROGRESS|a"' in event["data"]
    viewer.put("a", 2, 100)
    headers = {"Last-Event-ID": event["id"]}
    with viewer.http.stream("GET", f"{viewer.path}/watch", headers=headers) as stream:
        lines = stream.iter_lines()
        events = [read_event(lines), read_event(lines)]
        assert sorted(each["event"] for each in events) == ["gone", "put"]
    viewer.ask("GET", "/watch?since=-1", status=400)


def read_event(lines: Any) -> dict[str, str]:
    event: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if line and not line.startswith(":"):
            event[name] = value
        elif event:
            return event
    raise AssertionError("the stream ended")


def profile_of(viewer: Viewer) -> str:
    return viewer.path.rpartition("/")[2]


def verified(service: Service, viewer: Viewer) -> list[Any]:
    async def work(engine: Any) -> list[Any]:
        store = Store(SCHEMAS[0], engine, profile_of(viewer))
        return [finding async for finding in verify(store)]

    return service.on_engine(work)
