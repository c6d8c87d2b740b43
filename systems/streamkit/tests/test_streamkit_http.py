"""Every line of Streamkit's document, over real HTTP, on SQLite and on PostgreSQL."""

import asyncio
from typing import Any
from urllib.parse import quote

import httpx
import msgspec
import pytest

from keyhouse_streamkit.keys import build_kv_key, parse_kv_key
from systems.streamkit.tests.support.configs import CONFIGS, DAY, keys, new_customer, now, sent
from systems.streamkit.tests.support.service import Service, token
from tests.sizes import size

# Key categories


@pytest.mark.parametrize("category", CONFIGS)
def test_a_config_of_each_category_is_stored_at_its_key(
    service: Service, panel: httpx.Client, customer: str, category: str
) -> None:
    config = sent(category)
    made = panel.post(f"/configs/{category}", json=config)
    assert made.status_code == 201
    kept = config | {"createdAt": now(service), "updatedAt": now(service)}
    assert made.json() == {"success": True, "config": kept}
    assert (
        httpx.URL(f"{service.url}/configs/{category}")
        .join(made.headers["location"])
        .path.endswith(f"/streamkit/configs/{category}/{config['id']}")
    )
    [entry] = panel.get("/export").json()
    assert entry == {
        "key": f"cust_{customer}_streamkit_{category}_{config['id']}",
        "value": entry["value"],
    }
    assert msgspec.json.decode(entry["value"]) == kept
    assert panel.get(f"/configs/{category}/{config['id']}").json() == kept


@pytest.mark.parametrize("category", CONFIGS)
def test_a_config_has_no_ttl(
    service: Service, panel: httpx.Client, customer: str, category: str
) -> None:
    panel.post(f"/configs/{category}", json=sent(category)).raise_for_status()
    service.clock.advance(seconds=4_000 * DAY)
    with service.client(customer) as later:
        path = f"/configs/{category}/{sent(category)['id']}"
        assert later.get(path).status_code == 200
        assert "expiration" not in later.get("/export").json()[0]
        assert later.delete(path).json() == {"success": True, "deleted": True}
        assert later.get(path).status_code == 404


def test_scene_activity_is_stored_at_its_key(
    service: Service, panel: httpx.Client, customer: str
) -> None:
    for count in (1, 2, 3):
        answer = panel.post("/scene-activity/record", json={"sceneName": "Gaming Scene"})
        assert answer.status_code == 200
        switched = {"sceneName": "Gaming Scene", "count": count, "lastUsed": now(service)}
        assert answer.json() == {"success": True, **switched}
    [entry] = panel.get("/export").json()
    assert entry["key"] == f"cust_{customer}_streamkit_scene_activity_Gaming Scene"
    assert msgspec.json.decode(entry["value"]) == switched
    assert entry["expiration"] == service.clock.now() // 1_000 + 30 * DAY


def test_each_use_of_a_scene_restarts_its_30_days(service: Service, customer: str) -> None:
    def ask(method: str, path: str, **options: Any) -> Any:
        with service.client(customer) as client:  # a token lives for hours
            return client.request(method, path, **options).raise_for_status().json()

    def switch(scene: str) -> int:
        return int(ask("POST", "/scene-activity/record", json={"sceneName": scene})["count"])

    assert (switch("BRB Scene"), switch("Just Chatting")) == (1, 1)
    for uses in (2, 3):
        service.clock.advance(seconds=29 * DAY)
        assert switch("BRB Scene") == uses
    names = [scene["sceneName"] for scene in ask("GET", "/scene-activity/top")["scenes"]]
    assert names == ["BRB Scene"]
    service.clock.advance(seconds=30 * DAY - 1)
    assert ask("GET", "/scene-activity/top")["scenes"][0]["count"] == 3
    service.clock.advance(seconds=1)
    assert ask("GET", "/scene-activity/top") == {"scenes": [], "count": 0}
    assert switch("BRB Scene") == 1


SWITCHES = size(200, 1_000, 1_000)


@pytest.mark.long
@pytest.mark.soak
def test_concurrent_switches_are_counted_exactly(service: Service, customer: str) -> None:
    async def storm() -> list[int]:
        headers = {"Authorization": f"Bearer {token(customer, service.clock)}"}
        numbers, counts = iter(range(SWITCHES)), []
        async with httpx.AsyncClient(base_url=service.url, headers=headers, timeout=120) as client:

            async def connection() -> None:
                for number in numbers:
                    answer = await client.post(
                        "/scene-activity/record", json={"sceneName": f"Scene {number % 2}"}
                    )
                    counts.append(int(answer.raise_for_status().json()["count"]))

            await asyncio.gather(*(connection() for _ in range(64)))
        return counts

    counts, half = asyncio.run(storm()), SWITCHES // 2
    assert sorted(counts) == sorted([*range(1, half + 1)] * 2), (
        "two got the same count, or one is missing"
    )
    with service.client(customer) as client:
        assert [scene["count"] for scene in client.get("/scene-activity/top").json()["scenes"]] == [
            half,
            half,
        ]


def test_top_scenes_order_by_count_then_by_last_use(service: Service, panel: httpx.Client) -> None:
    for scenes in (["a", "b", "c"], ["d", "b"], ["a"]):
        for scene in scenes:
            panel.post("/scene-activity/record", json={"sceneName": scene}).raise_for_status()
        service.clock.advance(seconds=1)
    top = panel.get("/scene-activity/top").json()
    assert [(scene["sceneName"], scene["count"]) for scene in top["scenes"]] == [
        ("a", 2),
        ("b", 2),
        ("d", 1),
        ("c", 1),
    ]
    assert [
        scene["sceneName"] for scene in panel.get("/scene-activity/top?limit=2").json()["scenes"]
    ] == ["a", "b"]
    for limit in ("0", "101", "x", ""):
        assert panel.get(f"/scene-activity/top?limit={limit}").status_code == 400
    assert panel.get("/scene-activity/top?limit=100").status_code == 200


# Key parsing


def test_stored_keys_parse_with_the_documents_functions(panel: httpx.Client, customer: str) -> None:
    panel.post("/configs/notes", json=sent("notes", id="scene_activity_x")).raise_for_status()
    panel.post(
        "/scene-activity/record", json={"sceneName": "notes_a_streamkit_swaps_b"}
    ).raise_for_status()
    assert [parse_kv_key(key) for key in keys(panel)] == [
        {"customerId": customer, "configType": "notes", "configId": "scene_activity_x"},
        {
            "customerId": customer,
            "configType": "scene_activity",
            "configId": "notes_a_streamkit_swaps_b",
        },
    ]
    assert keys(panel)[0] == build_kv_key(customer, "notes", "scene_activity_x")


# Customer isolation


def test_two_customers_with_the_same_ids_are_isolated(service: Service) -> None:
    first, second = new_customer(), new_customer()
    with service.client(first) as one, service.client(second) as other:
        for client, who in ((one, first), (other, second)):
            client.post(
                "/configs/text-cyclers", json=sent("text-cyclers", name=who)
            ).raise_for_status()
            client.post("/configs/swaps", json=sent("swaps", name=who)).raise_for_status()
            client.post(
                "/scene-activity/record", json={"sceneName": "Gaming Scene"}
            ).raise_for_status()
        assert one.get("/configs/text-cyclers/config1").json()["name"] == first
        assert other.get("/configs/text-cyclers/config1").json()["name"] == second
        assert all(key.startswith(f"cust_{first}_streamkit_") for key in keys(one))
        assert one.delete("/configs/swaps/swap1").json()["deleted"]
        assert [config["name"] for config in other.get("/configs/swaps").json()["configs"]] == [
            second
        ]
        assert other.get("/scene-activity/top").json()["scenes"][0]["count"] == 1


def test_the_customer_comes_only_from_the_token(
    service: Service, panel: httpx.Client, customer: str
) -> None:
    """Neither a body, nor a query, nor a header says whose a config is."""
    other = new_customer()
    made = panel.post(
        "/configs/notes",
        json=sent("notes", customerId=other, customer=other),
        headers={"X-Customer-Id": other},
    )
    assert made.status_code == 201 and other not in made.text
    assert panel.get("/configs/notes", params={"customerId": other}).status_code == 400
    assert keys(panel) == [f"cust_{customer}_streamkit_notes_note1"]
    with service.client(other) as theirs:
        assert keys(theirs) == []
    for id in (
        f"../cust_{other}_streamkit_notes_note1",
        f"x_streamkit_notes_cust_{other}",
        "*",
        "%",
        "note1/../note1",
    ):
        assert panel.get(f"/configs/notes/{quote(id, safe='')}").status_code == 404


def test_the_expiration_of_a_token_is_enforced_at_every_request(
    service: Service, panel: httpx.Client
) -> None:
    assert panel.get("/configs/notes").status_code == 200
    service.clock.advance(seconds=13 * 3_600)
    answer = panel.get("/configs/notes")
    assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
    assert answer.headers["www-authenticate"].startswith("Bearer")


def test_only_health_works_without_a_token(service: Service) -> None:
    assert httpx.get(f"{service.url}/health", timeout=60).json() == {"status": "ok"}
    for method, path in (
        ("GET", "/configs/notes"),
        ("GET", "/export"),
        ("POST", "/scene-activity/record"),
    ):
        assert httpx.request(method, service.url + path, timeout=60).status_code == 401


def test_a_token_is_accepted_as_cookie_or_bearer(service: Service, customer: str) -> None:
    made = token(customer, service.clock)
    cookies = {"auth_token": made}
    with httpx.Client(base_url=service.url, cookies=cookies, timeout=60) as client:
        assert client.get("/configs/notes").status_code == 200


# Key naming


@pytest.mark.parametrize(
    "id", ["config 1", "a/b", "a?b", "a&b", "a=b", "é", "", "a" * 101, "a\n", ".", "..", 5, True]
)
def test_an_id_that_is_not_url_safe_is_rejected(panel: httpx.Client, id: object) -> None:
    answer = panel.post("/configs/notes", json=sent("notes", id=id))
    assert answer.status_code in (400, 422)
    assert keys(panel) == []


@pytest.mark.parametrize(
    "category", ["TextCyclers", "text_cyclers", "textcyclers", "scene_activity", "v2_notes", "%20"]
)
def test_an_unknown_type_is_404(panel: httpx.Client, category: str) -> None:
    for method, path in (
        ("GET", ""),
        ("POST", ""),
        ("GET", "/a"),
        ("PUT", "/a"),
        ("DELETE", "/a"),
        ("POST", ":batch"),
    ):
        answer = panel.request(
            method, f"/configs/{category}{path}", json={} if method in ("POST", "PUT") else None
        )
        assert (answer.status_code, answer.headers["content-type"]) == (
            404,
            "application/problem+json",
        )


# Key lifecycle


def test_create(service: Service, panel: httpx.Client) -> None:
    lies = {
        "createdAt": "1999-01-01T00:00:00.000Z",
        "updatedAt": "soon",
        "panelVersion": {"major": 2},
    }
    config = panel.post("/configs/notes", json=sent("notes", **lies)).json()["config"]
    assert (config["createdAt"], config["updatedAt"]) == (now(service), now(service))
    assert config["panelVersion"] == {"major": 2}
    again = panel.post("/configs/notes", json=sent("notes"))
    assert (again.status_code, again.json()["code"]) == (409, "CONFLICT")
    named = panel.post("/configs/notes", json={"title": "a", "content": "b"})
    assert named.status_code == 201
    assert (
        panel.get(f"/configs/notes/{named.json()['config']['id']}").json() == named.json()["config"]
    )


@pytest.mark.parametrize(
    ("category", "wrong"),
    [
        ("text-cyclers", {"mode": "other"}),
        ("text-cyclers", {"textLines": "one"}),
        ("text-cyclers", {"styles": []}),
        ("swaps", {"preserveAspect": 1}),
        ("swaps", {"duration": "400"}),
        ("layouts", {"sources": [{"positionX": 1}]}),
        ("layouts", {"sources": {}}),
        ("notes", {"title": None}),
    ],
)
def test_an_invalid_value_is_rejected_with_its_member(
    panel: httpx.Client, category: str, wrong: dict[str, Any]
) -> None:
    answer = panel.post(f"/configs/{category}", json=sent(category, **wrong))
    assert answer.status_code == 422
    assert next(iter(wrong)) in answer.text
    assert keys(panel) == []


def test_read(panel: httpx.Client) -> None:
    panel.post("/configs/notes", json=sent("notes")).raise_for_status()
    answer = panel.get("/configs/notes/note1")
    assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
    same = panel.get("/configs/notes/note1", headers={"If-None-Match": answer.headers["etag"]})
    assert (same.status_code, same.content) == (304, b"")
    assert panel.get("/configs/notes/none").status_code == 404
    assert panel.get("/configs/swaps/note1").status_code == 404


def test_update(service: Service, panel: httpx.Client) -> None:
    assert panel.put("/configs/notes/note1", json=sent("notes")).status_code == 404
    made = panel.post("/configs/notes", json=sent("notes", pinned=True)).json()["config"]
    service.clock.advance(milliseconds=1_500)
    changed = panel.put(
        "/configs/notes/note1",
        json={"id": "x", "title": "New", "content": "", "createdAt": "never"},
    )
    assert changed.status_code == 200
    assert changed.json()["config"] == {
        "id": "note1",
        "title": "New",
        "content": "",
        "createdAt": made["createdAt"],
        "updatedAt": now(service),
    }
    assert panel.get("/configs/notes/note1").json() == changed.json()["config"], (
        "a full replacement"
    )
    assert panel.get("/configs/notes/x").status_code == 404


def test_an_update_with_a_stale_etag_is_412(panel: httpx.Client) -> None:
    tag = panel.post("/configs/notes", json=sent("notes")).headers["etag"]
    assert panel.get("/configs/notes/note1").headers["etag"] == tag
    newer = panel.put(
        "/configs/notes/note1", json=sent("notes", title="2"), headers={"If-Match": tag}
    )
    assert newer.status_code == 200
    late = panel.put(
        "/configs/notes/note1", json=sent("notes", title="3"), headers={"If-Match": tag}
    )
    assert (late.status_code, panel.get("/configs/notes/note1").json()["title"]) == (412, "2")
    assert panel.delete("/configs/notes/note1", headers={"If-Match": tag}).status_code == 412
    assert panel.delete("/configs/notes/note1", headers={"If-Match": newer.headers["etag"]}).json()[
        "deleted"
    ]


def test_delete_succeeds_if_the_config_is_absent(panel: httpx.Client) -> None:
    panel.post("/configs/notes", json=sent("notes")).raise_for_status()
    for deleted in (True, False, False):
        answer = panel.delete("/configs/notes/note1")
        assert (answer.status_code, answer.json()) == (200, {"success": True, "deleted": deleted})
    assert panel.delete("/configs/notes/no%20id").json() == {"success": True, "deleted": False}
