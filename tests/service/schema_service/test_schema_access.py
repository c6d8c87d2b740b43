"""Spaces, scopes and closed records of a served schema."""

from pathlib import Path
from typing import Any

import pytest

from keyhouse import Record, Schema, Space, Template
from keyhouse.errors import DeclarationError, UsageError
from keyhouse.keys import Regex
from keyhouse.service.schema_service.catalog import Catalog
from keyhouse.service.schema_service.settings import RecordSettings
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
        assert box.get("/records/hidden/a").status_code == 404
        assert box.put("/records/hidden/a", json={"text": "a"}).status_code == 404
        assert box.get("/watch?record=hidden").status_code == 400
        put = {"op": "put", "record": "hidden", "fields": {"name": "a"}, "value": {"text": "a"}}
        assert box.post("/batch", json={"operations": [put]}).status_code == 404
        assert "hidden" not in box.get("/schema").text
        assert "hidden" not in box.get("/openapi.json").text.lower()
        assert box.get("/records/recipe").status_code == 200
        assert box.put(ADDRESS, json=SMALL).status_code == 405
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
