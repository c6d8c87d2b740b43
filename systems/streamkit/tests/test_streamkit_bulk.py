"""Many configs of Streamkit at once, over real HTTP: lists, batches, export and import."""

import asyncio
from typing import Any

import httpx
import msgspec
import pytest

from keyhouse.engine import Engine, Span
from keyhouse.limits import VALUE_BYTES_MAX
from systems.streamkit.tests.support.configs import CONFIGS, NOW_TEXT, keys, now, sent
from systems.streamkit.tests.support.service import Service


@pytest.mark.parametrize(
    "service",
    ["sqlite", pytest.param("postgres", marks=pytest.mark.extra)],
    indirect=True,
    scope="module",
)
def test_list_follows_past_1000(service: Service, panel: httpx.Client) -> None:
    count, ids = 1_234, []
    for start in range(0, count, 100):
        operations = [
            {"op": "create", "config": sent("notes", id=f"n{number:05d}")}
            for number in range(start, min(start + 100, count))
        ]
        panel.post("/configs/notes:batch", json={"operations": operations}).raise_for_status()
    wanted = [f"n{number:05d}" for number in range(count)]
    whole = panel.get("/configs/notes").json()
    assert [config["id"] for config in whole["configs"]] == wanted
    assert whole["count"] == count and "cursor" not in whole
    query: dict[str, Any] = {"limit": 500, "fields": "ids"}
    while True:
        page = panel.get("/configs/notes", params=query).json()
        ids += page["configs"]
        if "cursor" not in page:
            break
        query["cursor"] = page["cursor"]
    assert ids == [{"id": id} for id in wanted]


def test_list_since_a_time_has_later_changes(service: Service, panel: httpx.Client) -> None:
    for id in ("a", "b", "c"):
        panel.post("/configs/swaps", json=sent("swaps", id=id)).raise_for_status()
    service.clock.advance(seconds=60)
    panel.put("/configs/swaps/b", json=sent("swaps", name="changed")).raise_for_status()
    panel.post("/configs/swaps", json=sent("swaps", id="d")).raise_for_status()
    since = now(service)
    for text in (since, since.replace(".000Z", "Z")):
        found = panel.get("/configs/swaps", params={"since": text}).json()["configs"]
        assert [config["id"] for config in found] == ["b", "d"]
    page = panel.get("/configs/swaps", params={"since": since, "limit": 1, "fields": "ids"}).json()
    assert page["configs"] == [{"id": "b"}]
    rest = panel.get(
        "/configs/swaps", params={"since": since, "limit": 1, "cursor": page["cursor"]}
    ).json()
    assert [config["id"] for config in rest["configs"]] == ["d"] and "cursor" not in rest
    service.clock.advance(milliseconds=1)
    assert panel.get("/configs/swaps", params={"since": now(service)}).json() == {
        "configs": [],
        "count": 0,
    }
    for wrong in ("yesterday", "2026-01-18", "2026-01-18T12:00:00"):
        assert panel.get("/configs/swaps", params={"since": wrong}).status_code == 400


def test_a_batch_is_atomic(panel: httpx.Client) -> None:
    tag = panel.post("/configs/notes", json=sent("notes", id="there")).headers["etag"]
    good: list[dict[str, Any]] = [
        {"op": "create", "config": sent("notes", id="new")},
        {"op": "update", "id": "there", "config": sent("notes", title="changed"), "ifMatch": tag},
        {"op": "delete", "id": "none"},
    ]
    before = panel.get("/export").text
    bad: list[tuple[dict[str, Any], int]] = [
        ({"op": "create", "config": sent("notes", id="there")}, 422),  # named twice
        ({"op": "update", "id": "absent", "config": sent("notes")}, 404),
        ({"op": "create", "config": sent("notes", id="a b")}, 400),
        ({"op": "create", "config": sent("notes", id="x", title=5)}, 422),
        ({"op": "replace", "id": "x"}, 422),
    ]
    for operation, status in bad:
        answer = panel.post("/configs/notes:batch", json={"operations": [*good, operation]})
        assert answer.status_code == status, answer.text
    stale = [good[0], {"op": "update", "id": "there", "config": sent("notes"), "ifMatch": '"0"'}]
    refused = panel.post("/configs/notes:batch", json={"operations": stale})
    assert (refused.status_code, refused.json()["fields"]["operation"]) == (412, 1)
    assert panel.get("/export").text == before
    done = panel.post("/configs/notes:batch", json={"operations": good}).json()
    assert [result["op"] for result in done["results"]] == ["create", "update", "delete"]
    assert panel.get("/configs/notes/there").json() == done["results"][1]["config"]
    assert done["results"][2] == {"op": "delete", "id": "none", "deleted": False}
    many = [{"op": "delete", "id": f"n{number}"} for number in range(101)]
    assert panel.post("/configs/notes:batch", json={"operations": many}).status_code in (413, 422)


# Storage estimates


def test_a_customer_of_the_documents_size_fits(
    panel: httpx.Client,
) -> None:
    for category in CONFIGS:
        operations = [
            {"op": "create", "config": sent(category, id=f"n{number}")} for number in range(100)
        ]
        panel.post(f"/configs/{category}:batch", json={"operations": operations}).raise_for_status()
    sizes = {category: len(panel.get(f"/configs/{category}/n1").content) for category in CONFIGS}
    assert (
        sizes["text-cyclers"] < 2_048
        and sizes["swaps"] < 400
        and sizes["layouts"] < 5_120
        and sizes["notes"] < 10_240
    )
    assert len(keys(panel)) == 400


# Operator


def test_an_export_is_imported_with_its_times(
    service: Service, panel: httpx.Client, customer: str
) -> None:
    for category in CONFIGS:
        panel.post(f"/configs/{category}", json=sent(category)).raise_for_status()
    panel.post(
        "/scene-activity/record", json={"sceneName": "Gaming Scene ☕ %2F"}
    ).raise_for_status()
    exported = panel.get("/export")
    service.clock.advance(seconds=60)
    for category in CONFIGS:
        panel.delete(f"/configs/{category}/{sent(category)['id']}").raise_for_status()
    loaded = panel.post(
        "/import", content=exported.content, headers={"Content-Type": "application/json"}
    )
    assert loaded.json() == {"success": True, "written": 4, "unchanged": 1, "expired": 0}
    assert panel.get("/export").json() == exported.json()
    again = panel.post(
        "/import", content=exported.content, headers={"Content-Type": "application/json"}
    )
    assert again.json()["unchanged"] == 5


def test_an_invalid_import_writes_nothing(panel: httpx.Client, customer: str) -> None:
    note = {"id": "a", "title": "a", "content": "b", "createdAt": NOW_TEXT, "updatedAt": NOW_TEXT}

    def entry(key: str, **changes: Any) -> dict[str, Any]:
        return {"key": key, "value": msgspec.json.encode(note | changes).decode()}

    own = f"cust_{customer}_streamkit_notes_"
    wrong: list[Any] = [
        entry("cust_another_streamkit_notes_a"),
        entry(f"cust_{customer}_other_a"),
        entry(own + "b"),
        entry(own + "a", title=5),
        entry(own + "a", createdAt="never"),
        entry(own + "a"),
        {"key": own + "x", "value": "{"},
        {"key": own + "x", "value": "é", "base64": True},
        {"name": own + "x"},
        {"key": own + "x"},
        5,
    ]
    for each in wrong:
        answer = panel.post("/import", json=[entry(own + "a"), each])
        assert answer.status_code in (400, 422), answer.text
        assert keys(panel) == []
    scene = {"sceneName": "far", "count": 1, "lastUsed": "9999-12-31T23:59:59.999Z"}
    for each in (  # found when they were committed once, after all that stood before them
        entry(own + "large", id="large", content="x" * VALUE_BYTES_MAX),
        {
            "key": f"cust_{customer}_streamkit_scene_activity_far",
            "value": msgspec.json.encode(scene).decode(),
        },
    ):
        answer = panel.post(
            "/import", json=[*(entry(f"{own}{n}", id=str(n)) for n in range(30)), each]
        )
        assert answer.status_code in (413, 422) and answer.json()["fields"]["entry"] == 30
        assert keys(panel) == []
    got = {own + "a": {"value": entry(own + "a")["value"]}}
    assert panel.post("/import", json=got).json()["written"] == 1, (
        "what `wrangler kv bulk get` writes is read too"
    )


def test_an_import_takes_what_wrangler_prints(panel: httpx.Client, customer: str) -> None:
    """The line below the JSON made it 400, and a key that expired between `list` and `get` 422."""
    note = {"id": "a", "title": "a", "content": "b", "createdAt": NOW_TEXT, "updatedAt": NOW_TEXT}
    own = f"cust_{customer}_streamkit_notes_"
    printed = {
        own + "a": {"value": msgspec.json.encode(note).decode()},
        own + "gone": {"value": None},
        f"cust_{customer}_streamkit_scene_activity_old": None,
    }
    text = b"\n" + msgspec.json.format(msgspec.json.encode(printed)) + b"\n\nSuccess!\n"
    answer = panel.post("/import", content=text, headers={"Content-Type": "application/json"})
    assert answer.json() == {"success": True, "written": 1, "unchanged": 0, "expired": 2}
    other = {f"cust_{customer}x_streamkit_notes_gone": {"value": None}}
    assert panel.post("/import", json=other).status_code == 422, "a key of another customer"
    assert panel.post("/import", json={"any": {"value": None}}).status_code == 422


def test_no_row_is_in_another_customers_space(service: Service) -> None:
    """After all the tests of this file: each space holds only keys of its customer."""

    async def look(engine: Engine) -> None:
        async for space in engine.spaces():
            for row in (await engine.scan(space, Span(), limit=10_000)).rows:
                assert row.key.startswith(f"cust_{space}_streamkit_")

    async def run() -> None:
        engine = await service.opener(service.clock)
        try:
            await look(engine)
        finally:
            await engine.close()

    asyncio.run(run())
