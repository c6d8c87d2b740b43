"""A declared schema over HTTP: each row of its docs, on a file, PostgreSQL and JetStream."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.service.schema_service.support.served import SMALL, Served


@pytest.fixture
def box(served: Served, request: Any) -> Iterator[httpx.Client]:
    """A client in its own space."""
    tenant = f"t{abs(hash(request.node.name))}"
    with served.client(tenant) as client:
        yield client


def put(box: httpx.Client, id: str, **members: Any) -> Any:
    value = {"title": id.title(), "slug": id, **members}
    response = box.put(f"/records/recipe/{id}", json=value)
    assert response.status_code in (200, 201), response.text
    return response.json()


def ids(response: httpx.Response) -> list[str]:
    assert response.status_code == 200, response.text
    return [item["value"]["id"] for item in response.json()["items"]]


def test_a_new_record_is_201_with_its_location_and_item(box: httpx.Client) -> None:
    response = box.post("/records/recipe", json={**SMALL, "secret": "a"})
    assert response.status_code == 201
    item = response.json()
    assert item["key"] == "recipe:pie"
    assert item["fields"] == {"id": "pie"}
    assert item["expires_at"] is None
    assert "secret" not in item["value"]
    assert response.headers["etag"] == f'"{item["revision"]}"'
    at = response.request.url.join(response.headers["location"])
    assert box.get(at).json() == item


def test_a_record_that_exists_or_a_taken_value_is_409(box: httpx.Client) -> None:
    box.post("/records/recipe", json=SMALL)
    again = box.post("/records/recipe", json={**SMALL, "slug": "other"})
    assert again.status_code == 409
    taken = box.post("/records/recipe", json={**SMALL, "id": "tart"})
    assert taken.status_code == 409
    assert taken.json()["fields"]["key"] == "idx:recipe:slug:apple-pie"


def test_get_has_an_etag_and_is_304_and_404(box: httpx.Client) -> None:
    revision = put(box, "pie")["revision"]
    found = box.get("/records/recipe/pie")
    assert found.headers["etag"] == f'"{revision}"'
    same = box.get("/records/recipe/pie", headers={"If-None-Match": f'"{revision}"'})
    assert (same.status_code, same.content) == (304, b"")
    assert box.get("/records/recipe/none").status_code == 404
    assert box.get("/records/nothing/pie").status_code == 404


def test_put_is_201_then_200_and_keeps_private_members(box: httpx.Client) -> None:
    first = box.put("/records/recipe/pie", json={**SMALL, "secret": "a"})
    assert first.status_code == 201
    assert box.put("/records/recipe/pie", json={**SMALL, "minutes": 5}).status_code == 200
    # the private member is still there: a patch that depends on it alone would show otherwise
    assert box.put("/records/recipe/pie", json={**SMALL, "id": "tart"}).status_code == 422
    unknown = box.put("/records/recipe/pie", json={**SMALL, "colour": "red"})
    assert (unknown.status_code, unknown.json()["fields"]["member"]) == (422, "colour")
    nested = box.put("/records/recipe/pie", json={**SMALL, "steps": [{"text": "a", "at": 1}]})
    assert (nested.status_code, nested.json()["fields"]["member"]) == (422, "steps[0].at")


def test_preconditions_are_412(box: httpx.Client) -> None:
    revision = put(box, "pie")["revision"]
    address, value = "/records/recipe/pie", {"title": "Pie", "slug": "pie"}
    for method, body in (("PUT", value), ("PATCH", {"minutes": 1}), ("DELETE", None)):
        late = box.request(method, address, json=body, headers={"If-Match": '"0"'})
        assert late.status_code == 412, method
    assert box.put(address, json=value, headers={"If-None-Match": "*"}).status_code == 412
    ok = box.patch(address, json={"minutes": 2}, headers={"If-Match": f'"{revision}"'})
    assert ok.status_code == 200
    assert box.delete("/records/recipe/no", headers={"If-Match": "*"}).status_code == 412


def test_patch_merges_and_removes(box: httpx.Client) -> None:
    put(box, "pie", note="hot", minutes=3)
    sent = {"Content-Type": "application/merge-patch+json"}
    patched = box.patch("/records/recipe/pie", content=b'{"note":null,"minutes":9}', headers=sent)
    assert patched.status_code == 200
    assert patched.json()["value"]["note"] is None
    assert patched.json()["value"]["minutes"] == 9
    assert box.patch("/records/recipe/none", json={}).status_code == 404
    assert box.patch("/records/recipe/pie", json={"id": "tart"}).status_code == 422
    assert box.patch("/records/recipe/pie", json={"minute": 1}).status_code == 422


def test_concurrent_patches_of_different_members_are_all_applied(box: httpx.Client) -> None:
    put(box, "pie", minutes=0)

    def patch(number: int) -> int:
        member = ("title", "note", "minutes")[number % 3]
        value: Any = number if member == "minutes" else str(number)
        return box.patch("/records/recipe/pie", json={member: value}).status_code

    with ThreadPoolExecutor(12) as threads:
        assert set(threads.map(patch, range(36))) == {200}
    value = box.get("/records/recipe/pie").json()["value"]
    assert [int(value[name]) % 3 for name in ("title", "note", "minutes")] == [0, 1, 2]


def test_delete_is_204_also_when_absent(box: httpx.Client) -> None:
    put(box, "pie")
    for _ in range(2):
        assert box.delete("/records/recipe/pie").status_code == 204
    assert box.get("/records/recipe/pie").status_code == 404


def test_lists_by_key_and_by_index_in_both_orders_and_in_pages(box: httpx.Client) -> None:
    for number, id in enumerate(("apple", "bread", "cake", "date")):
        put(box, id, minutes=number * 10, tags=["a", "b"] if number % 2 else ["a"])
    assert ids(box.get("/records/recipe")) == ["apple", "bread", "cake", "date"]
    assert ids(box.get("/records/recipe?order=desc&limit=2")) == ["date", "cake"]
    assert ids(box.get("/records/recipe?id.prefix=b")) == ["bread"]
    ranged = "/records/recipe?by=minutes&minutes.from=10&minutes.to=30"
    assert ids(box.get(ranged)) == ["bread", "cake"]
    assert ids(box.get("/records/recipe?by=tag&tag=b")) == ["bread", "date"]
    assert ids(box.get("/records/recipe?by=by-title&title.prefix=C")) == ["cake"]
    first = box.get("/records/recipe?limit=3").json()
    assert first["revision"] > 0
    rest = box.get("/records/recipe", params={"limit": 3, "cursor": first["cursor"]})
    assert (ids(rest), "cursor" in rest.json()) == (["date"], False)


def test_a_page_of_large_records_ends_by_its_bytes_and_continues(box: httpx.Client) -> None:
    """500 records of 380 KiB were read, decoded and encoded in one step."""
    for number in range(40):
        put(box, f"{number:02d}", note="x" * 300_000)
    ids: list[str] = []
    pages, cursor = 0, None
    while cursor is not None or not pages:
        given = {"limit": 500} | ({} if cursor is None else {"cursor": cursor})
        response = box.get("/records/recipe", params=given)
        assert len(response.content) < 6 * 2**20
        page = response.json()
        ids += [item["fields"]["id"] for item in page["items"]]
        pages, cursor = pages + 1, page.get("cursor")
    assert ids == [f"{number:02d}" for number in range(40)]
    assert pages > 2


def test_a_page_has_as_many_records_as_it_is_asked_for(box: httpx.Client) -> None:
    names = [f"{number:03d}" for number in range(130)]
    operations = [
        {
            "op": "put",
            "record": "recipe",
            "fields": {"id": name},
            "value": {"id": name, "title": name, "slug": name},
        }
        for name in names
    ]
    for start in (0, 65):
        done = box.post("/batch", json={"operations": operations[start : start + 65]})
        assert done.status_code == 200, done.text
    page = box.get("/records/recipe", params={"limit": 120}).json()
    assert [item["fields"]["id"] for item in page["items"]] == names[:120]
    rest = box.get("/records/recipe", params={"limit": 120, "cursor": page["cursor"]}).json()
    assert len(rest["items"]) == 10 and "cursor" not in rest


def test_a_filter_that_no_index_serves_is_400_and_names_the_indexes(box: httpx.Client) -> None:
    for query in ("minutes=3", "colour=red", "by=minutes&id=a", "by=tag&minutes.from=1"):
        refused = box.get(f"/records/recipe?{query}")
        assert refused.status_code == 400, query
        assert "minutes: minutes, id" in refused.json()["fields"]["indexes"], query
    for query in ("limit=501", "limit=0", "order=up", "by=nothing", "cursor=%21"):
        assert box.get(f"/records/recipe?{query}").status_code == 400, query


def test_lookup_follows_a_unique_row(box: httpx.Client) -> None:
    put(box, "pie", slug="apple-pie")
    found = box.get("/lookup/recipe?by=slug&slug=apple-pie")
    assert (found.status_code, found.json()["fields"]) == (200, {"id": "pie"})
    assert box.get("/lookup/recipe?by=slug&slug=none").status_code == 404
    for query in ("by=minutes&minutes=1", "by=slug", "slug=a"):
        assert box.get(f"/lookup/recipe?{query}").status_code == 400


def test_a_counter_is_exact_under_concurrency_and_a_key_applies_once(box: httpx.Client) -> None:
    assert box.get("/counters/views/pie").json() == {"value": 0}

    def add(number: int) -> int:
        key = {"Idempotency-Key": f"k{number % 20}"}
        return box.post("/counters/views/pie", json={"by": 2}, headers=key).status_code

    with ThreadPoolExecutor(8) as threads:
        assert set(threads.map(add, range(60))) == {200}
    assert box.get("/counters/views/pie").json() == {"value": 40}
    assert box.post("/counters/views/pie", json={"by": -1}).json() == {"value": 39}
    assert box.post("/counters/views/pie", json={"by": "1"}).status_code == 422


def test_a_log_folds_in_the_commit_of_its_event(box: httpx.Client) -> None:
    for stars in (3, 5):
        appended = box.post("/logs/cooked", json={"recipe": "pie", "stars": stars})
        assert appended.status_code == 201
    listed = box.get("/logs/cooked?recipe=pie&order=desc").json()
    assert [item["value"]["stars"] for item in listed["items"]] == [5, 3]
    assert listed["revision"] >= listed["items"][0]["revision"]
    assert box.get("/records/rating/pie").json()["value"]["stars"] == 8
    assert box.put("/records/rating/pie", json={"through": "", "stars": 1}).status_code == 403


def test_a_ttl_is_taken_where_the_record_allows_it(box: httpx.Client) -> None:
    made = box.put("/records/draft/ann/one?ttl=60", json={"text": "a"})
    assert made.json()["expires_at"] is not None
    patched = box.patch("/records/draft/ann/one", json={"text": "b"})
    assert patched.json()["expires_at"] is not None, "a patch keeps the time of a draft"
    assert box.put("/records/draft/ann/one", json={"text": "a"}).json()["expires_at"] is None
    assert box.put("/records/recipe/pie?ttl=60", json=SMALL).status_code == 400


def test_addresses_are_percent_encoded_fields_of_their_type(box: httpx.Client) -> None:
    made = box.put("/records/draft/a%2Fb/c%20d", json={"text": "a"})
    assert made.json()["fields"] == {"user": "a/b", "name": "c d"}
    planned = box.put("/records/plan/2026-01-18", json={"dish": "pie"})
    assert planned.json()["fields"] == {"day": "2026-01-18"}
    assert planned.json()["value"] == {"day": "2026-01-18", "dish": "pie"}
    assert box.get("/records/plan/yesterday").status_code == 400
    assert box.put("/records/note/a", json="text").json()["value"] == "text"
    posted = box.post("/records/draft?user=ann&name=new", json={"text": "a"})
    assert (posted.status_code, posted.headers["location"]) == (201, "draft/ann/new")


def test_a_batch_is_all_or_nothing_and_a_key_applies_once(box: httpx.Client) -> None:
    put(box, "old")
    operations: list[dict[str, Any]] = [
        {"op": "put", "record": "recipe", "fields": {"id": "pie"}, "value": SMALL},
        {"op": "patch", "record": "recipe", "fields": {"id": "pie"}, "value": {"minutes": 4}},
        {"op": "delete", "record": "recipe", "fields": {"id": "old"}},
        {"op": "add", "counter": "views", "fields": {"id": "pie"}, "by": 2},
        {"op": "append", "log": "cooked", "value": {"recipe": "pie", "stars": 1}},
    ]
    failing = [*operations, {"op": "patch", "record": "recipe", "fields": {"id": "x"}, "value": {}}]
    failed = box.post("/batch", json={"operations": failing})
    assert (failed.status_code, failed.json()["fields"]["operation"]) == (404, 5)
    assert box.get("/records/recipe/pie").status_code == 404
    for _ in range(2):
        done = box.post(
            "/batch", json={"operations": operations}, headers={"Idempotency-Key": "once"}
        )
        assert done.status_code == 200, done.text
    assert box.get("/counters/views/pie").json() == {"value": 2}
    assert box.get("/records/recipe/pie").json()["value"]["minutes"] == 4
    assert box.get("/records/recipe/old").status_code == 404
    assert len(box.get("/logs/cooked?recipe=pie").json()["items"]) == 1


@pytest.mark.parametrize(
    ("operation", "status"),
    [
        ({"op": "put", "record": "nothing", "fields": {}, "value": 1}, 404),
        ({"op": "put", "counter": "views", "fields": {}, "value": 1}, 400),
        ({"op": "put", "record": "recipe", "fields": {}}, 400),
        ({"op": "put", "record": "recipe", "fields": {"id": 5}, "value": {}}, 400),
        ({"op": "add", "counter": "views", "fields": {"id": "a"}, "value": 1}, 400),
        ({"op": "put", "record": "rating", "fields": {"recipe": "a"}, "value": {}}, 403),
        ({"op": "delete", "record": "recipe", "fields": {"id": "a", "expect": 1}}, 400),
        ({"op": "append", "log": "cooked", "fields": {"ttl": 1}, "value": {}}, 400),
        ({"op": "sing"}, 422),
    ],
)
def test_a_wrong_operation_of_a_batch_is_named(
    box: httpx.Client, operation: dict[str, Any], status: int
) -> None:
    refused = box.post("/batch", json={"operations": [operation]})
    assert refused.status_code == status, refused.text
    if status != 422:
        assert refused.json()["fields"]["operation"] == 0


def test_the_schema_and_the_openapi_document_describe_the_records(box: httpx.Client) -> None:
    names = [record["name"] for record in box.get("/schema").json()["records"]]
    assert names[:2] == ["recipe", "draft"]
    document = box.get("/openapi.json").json()
    types = document["components"]["schemas"]
    assert "secret" not in types["RecipeValue"]["properties"]
    assert types["NewRecipe"]["required"] == ["id", "title", "slug"]
    assert types["PutRecipe"]["required"] == ["title", "slug"]
    assert "application/merge-patch+json" in str(document["paths"]["/records/recipe/{id}"]["patch"])
