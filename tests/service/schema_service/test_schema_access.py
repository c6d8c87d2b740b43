"""Spaces, scopes and closed records of a served schema."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from keyhouse import Record, Schema, Space, Template
from keyhouse.errors import DeclarationError, UsageError
from keyhouse.keys import Regex
from keyhouse.operations.catalog import Catalog, RecordSettings
from tests.service.schema_service.support.recipes import BOX, Draft
from tests.service.schema_service.support.served import SMALL, serving
from tests.support.engine_openers import memory

ADDRESS = "/records/recipe/pie"


def test_the_space_is_the_tenant_of_the_token(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path) as served:
        ann, bob = served.client("ann"), served.client("bob")
        assert ann.put(ADDRESS, json=SMALL).status_code == 201
        assert bob.get(ADDRESS).status_code == 404
        assert bob.put(ADDRESS, json=SMALL).status_code == 201
        assert bob.get(ADDRESS, headers={"Keyhouse-Space": "ann"}).status_code == 403
        assert ann.get(ADDRESS, headers={"Keyhouse-Space": "ann"}).status_code == 200


def test_a_token_with_the_scope_spaces_names_its_space(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path) as served:
        served.client("ann").put(ADDRESS, json=SMALL)
        support = served.client("support", "read", "spaces")
        assert support.get(ADDRESS).status_code == 404
        found = support.get(ADDRESS, headers={"Keyhouse-Space": "ann"})
        assert found.status_code == 200
        sent = {"Keyhouse-Space": "ann"}
        assert support.put(ADDRESS, json=SMALL, headers=sent).status_code == 403, "no scope write"
        invalid = support.get(ADDRESS, headers={"Keyhouse-Space": "a" * 300})
        assert invalid.status_code == 403


def test_a_setting_fixes_one_space_for_everybody(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path, space="main") as served:
        served.client("ann").put(ADDRESS, json=SMALL)
        assert served.client("bob").get(ADDRESS).status_code == 200
        named = served.client("bob", "read", "spaces", **{"Keyhouse-Space": "ann"})
        assert named.get(ADDRESS).status_code == 403


def test_a_schema_with_one_space_has_it_for_every_tenant(tmp_path: Path) -> None:
    draft = Record(Draft, "draft:{name}")
    schema = Schema("drafts", draft, space=Space("all", name="all"))
    with serving(memory(tmp_path), tmp_path, schema) as served:
        assert served.client("ann").put("/records/draft/a", json={"text": "a"}).status_code == 201
        assert served.client("bob").get("/records/draft/a").status_code == 200


def test_a_tenant_that_is_not_a_space_of_the_schema_is_403(tmp_path: Path) -> None:
    draft = Record(Draft, Template("{user}/draft/{name}", user=Regex("[a-c]+")))
    space = Space("a user", field="user", segment=Regex("[a-c]+"))
    schema = Schema("drafts", draft, space=space)
    with serving(memory(tmp_path), tmp_path, schema) as served:
        made = served.client("abc").put("/records/draft/x", json={"text": "a"})
        assert made.json()["key"] == "abc/draft/x"
        assert made.json()["fields"] == {"name": "x"}
        assert served.client("dan").get("/records/draft/x").status_code == 403


def test_read_and_write_are_separate_scopes(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path) as served:
        reader, writer = served.client("ann", "read"), served.client("ann", "write")
        assert reader.put(ADDRESS, json=SMALL).status_code == 403
        assert reader.post("/batch", json={"operations": []}).status_code == 403
        assert "value" not in writer.put(ADDRESS, json=SMALL).json()
        assert "value" not in writer.patch(ADDRESS, json={}).json()
        assert writer.post("/counters/views/pie", json={"by": 1}).json() == {}
        operation = {"op": "patch", "record": "recipe", "fields": {"id": "pie"}, "value": {}}
        reply = writer.post("/batch", json={"operations": [operation]}).json()
        assert "value" not in reply["items"][0]
        for path in (ADDRESS, "/records/recipe", "/watch?record=recipe", "/schema"):
            assert writer.get(path).status_code == 403
        assert reader.get(ADDRESS).status_code == 200


def test_a_closed_record_is_closed_everywhere(tmp_path: Path) -> None:
    records: dict[str, Any] = {"hidden": {"http": False}, "recipe": {"read_only": True}}
    with serving(memory(tmp_path), tmp_path, records=records) as served:
        box = served.client("ann")
        put = {"op": "put", "record": "hidden", "fields": {"name": "a"}, "value": {"text": "a"}}
        for rejected in (
            box.get("/records/hidden/a"),
            box.put("/records/hidden/a", json={"text": "a"}),
            box.get("/watch?record=hidden"),
            box.post("/batch", json={"operations": [put]}),
        ):
            assert rejected.status_code == 403 and "close" in rejected.json()["detail"]
        assert box.get("/watch?record=hiden").status_code == 400
        assert served.http(None).get("/records/hidden/a").status_code == 401
        assert "hidden" not in box.get("/schema").text
        assert "hidden" not in box.get("/openapi.json").text.lower()
        assert box.get("/records/recipe").status_code == 200
        assert box.put(ADDRESS, json=SMALL).json()["detail"] == "This record is read-only."
        delete = {"op": "delete", "record": "recipe", "fields": {"id": "pie"}}
        assert box.post("/batch", json={"operations": [delete]}).status_code == 403


def test_a_quota_is_of_the_space(tmp_path: Path) -> None:
    with serving(memory(tmp_path), tmp_path, quota_keys=5) as served:
        ann, bob = served.client("ann"), served.client("bob")
        assert ann.put("/records/draft/a/1", json={"text": "a"}).status_code == 201
        full = ann.put(ADDRESS, json={**SMALL, "tags": list("abcdefg")})
        assert (full.status_code, full.json()["code"]) == (429, "QUOTA_EXCEEDED")
        assert bob.put("/records/draft/a/1", json={"text": "a"}).status_code == 201


def test_settings_of_unknown_records_and_taken_field_names_are_rejected() -> None:
    with pytest.raises(UsageError, match="does not have"):
        Catalog(BOX, {"recipies": RecordSettings()})
    taken = Schema("drafts", Record(Draft, "draft:{order}"), space=Space("a user"))
    with pytest.raises(DeclarationError, match="name of a parameter"):
        Catalog(taken, {})
    spaced = Schema("shows", Record(str, "now", name="on screen!"), space=Space("a user"))
    with pytest.raises(DeclarationError, match=r"declare `name`.*suggested='on-screen'"):
        Catalog(spaced, {})


def _documented(box: httpx.Client) -> list[tuple[str, str, str]]:
    """Return the record, method and path of each documented route of a record."""
    paths = box.get("/openapi.json").json()["paths"]
    return [
        (route["tags"][0], method.upper(), re.sub(r"{\w+}", "2026-01-31", path))
        for path, methods in paths.items()
        for method, route in methods.items()
        if method != "parameters" and route.get("tags", ["batch"])[0] in NAMES
    ]


NAMES = [record.name for record in BOX.records]


@pytest.mark.parametrize("closed", [{"http": False}, {"read_only": True}])
def test_each_route_of_a_closed_or_read_only_record_gives_the_answer_of_a_batch(
    closed: dict[str, bool], tmp_path: Path
) -> None:
    """A PUT of a read-only record was 405 and in a batch 403; a closed record was not found. With
    any query parameter, it was 400."""
    with serving(memory(tmp_path), tmp_path) as served:
        routes = _documented(served.client())
    assert {name for name, _, _ in routes} == set(NAMES)
    with serving(memory(tmp_path), tmp_path, records=dict.fromkeys(NAMES, closed)) as served:
        box = served.client()
        operations = {"record": "delete", "counter": "add", "log": "append"}
        for name, method, path in routes:
            is_read = method == "GET" or path.startswith("/get-many/")
            if is_read and "read_only" in closed:
                continue
            address = path.removeprefix("/recipes")
            found = box.request(method, address, json={})
            for query in ("limit=5", "ttl=20", "tag=a&tag=b", "%ff=1"):
                asked = box.request(method, f"{address}?{query}", json={})
                assert asked.status_code == 403, asked.text
                assert asked.json()["detail"] == found.json()["detail"]
            kind = path.removeprefix("/recipes").split("s/")[0].strip("/")
            if kind in operations and not is_read:
                operation: dict[str, Any] = {"op": operations[kind], kind: name}
                needed: dict[str, Any] = {"add": {"by": 1}, "append": {"value": {}}}
                operation |= needed.get(operation["op"], {})
                batch = box.post("/batch", json={"operations": [operation]})
                if batch.status_code != 404:  # nothing may be written: there is no batch
                    assert batch.json()["detail"] == found.json()["detail"]
            assert (found.status_code, found.json()["type"]) == (403, "urn:keyhouse:error:access")
            assert found.json()["fields"]["record"] == name
        assert "This record" not in box.get("/openapi.json").text
