"""A declared schema over NATS: the operations and answers of HTTP, on a real server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from keyhouse import Schema
from keyhouse.errors import UsageError
from keyhouse.operations.requests import SchemaRequest
from keyhouse.operations.table import VERBS, WATCH
from keyhouse.service.schema_service.acl import space_users
from keyhouse.service.schema_service.service import check_name
from tests.service.schema_service.support.nats_caller import called
from tests.service.schema_service.support.recipes import BOX
from tests.service.schema_service.support.served import ENGINES
from tests.support.program import run

WATCHED = {"fields", "subject", "since", "stop"}
PIE = {"id": "pie", "title": "Pie", "slug": "apple-pie", "secret": "s"}


@pytest.mark.parametrize("kind", ENGINES)
def test_every_operation_answers_as_over_http(kind: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called(kind, tmp_path) as call:
            made = await call("create", {"record": "recipe", "value": PIE})
            assert (made["success"], made["fields"]) == (True, {"id": "pie"})
            assert "secret" not in made["value"]
            again = await call("create", {"record": "recipe", "value": PIE})
            assert (again["success"], again["error_code"]) == (False, "CONFLICT")
            at = {"record": "recipe", "fields": {"id": "pie"}}
            assert (await call("get", at))["revision"] == made["revision"]
            patched = await call("patch", {**at, "value": {"minutes": 30}})
            assert patched["value"]["minutes"] == 30
            late = await call("put", {**at, "value": PIE, "expect": made["revision"]})
            assert late["error_code"] == "CONFLICT"
            taken = await call("put", {**at, "value": PIE, "expect": None})
            assert taken["error_code"] == "CONFLICT"
            soup = {"title": "Soup", "slug": "soup", "minutes": 10}
            await call("put", {"record": "recipe", "fields": {"id": "soup"}, "value": soup})
            ranged = {"record": "recipe", "by": "minutes", "fields": {"minutes.from": 20}}
            listed = await call("list", ranged)
            assert [item["fields"]["id"] for item in listed["items"]] == ["pie"]
            assert listed["revision"] >= patched["revision"]
            found = await call(
                "lookup", {"record": "recipe", "by": "slug", "fields": {"slug": "soup"}}
            )
            assert found["fields"] == {"id": "soup"}
            views = {"counter": "views", "fields": {"id": "pie"}}
            for _ in range(2):
                added = await call("add", {**views, "by": 2, "idempotency_key": "k"})
            assert (added["value"], (await call("get", views))["value"]) == (2, 2)
            event = {"log": "cooked", "value": {"recipe": "pie", "stars": 4}}
            assert (await call("append", event))["fields"]["recipe"] == "pie"
            events = await call("list", {"log": "cooked", "fields": {"recipe": "pie"}})
            assert len(events["items"]) == 1
            operations = [{"op": "add", **views, "by": 1}, {"op": "delete", **at}]
            assert (await call("batch", {"operations": operations}))["items"] == [None, None]
            assert (await call("get", at))["error_code"] == "NOT_FOUND"
            assert (await call("delete", at)) == {"success": True, "deleted": False}
            other = await call("list", {"record": "recipe"}, space="bob")
            assert other["items"] == []

    asyncio.run(scenario())


GIVEN: dict[str, Any] = {
    "record": "recipe",
    "counter": "views",
    "log": "cooked",
    "fields": {"id": "pie"},
    "value": PIE,
    "by": "slug",
    "order": "desc",
    "limit": 1,
    "days": 1,
    "addresses": [{"id": "pie"}],
    "unreadable": "skip",
    "cursor": "x",
    "expect": 1,
    "ttl": 60,
    "idempotency_key": "k",
    "operations": [],
    "since": 1,
    "subject": "_INBOX_ann.x",
    "stop": True,
}
"""Each member of a request, with a value that is not its default."""


def test_a_member_that_an_operation_does_not_take_is_rejected(tmp_path: Path) -> None:
    """They were ignored: an event was appended twice in spite of its idempotency key, a record was
    created forever in spite of its `ttl`, and a wrong `by` listed all records. HTTP rejects each
    as an unknown parameter."""
    assert set(GIVEN) == set(SchemaRequest.__struct_fields__)

    async def scenario() -> None:
        async with called("memory", tmp_path) as call:
            for verb in VERBS:
                members = set(verb.members) | (WATCHED if verb is WATCH else set())
                kind = {name: GIVEN[name] for name in verb.kinds[:1]}
                needed = {name: GIVEN[name] for name in verb.required} | kind
                needed |= {"subject": "_INBOX_ann.x"} if verb is WATCH else {}
                needed |= {"by": 1} if verb.name == "add" else {}
                for name in set(GIVEN) - members - {"record", "counter", "log"}:
                    reply = await call(verb.name, {**needed, name: GIVEN[name]})
                    assert not reply["success"], (verb.name, name)
                    assert "does not take this member" in reply["message"], (verb.name, name)
            assert (await call("list", {"record": "recipe"}))["items"] == []
            at = {"counter": "views", "fields": {"id": "pie"}}
            for operation, body in (
                ("add", {**at, "by": 1, "idempotency_key": ""}),
                ("add", {**at, "by": 1, "idempotency_key": "k" * 256}),
                ("add", {**at, "by": "1"}),
                ("list", {"record": "recipe", "by": 1}),
            ):
                assert (await call(operation, body))["error_code"] == "VALIDATION_ERROR", body
            assert (await call("lookup", {"record": "recipe"}))["error_code"] == "MISSING_FIELD"
            assert (await call("get", at))["value"] == 0

    asyncio.run(scenario())


def test_wrong_requests_are_named(tmp_path: Path) -> None:
    records = {"hidden": {"nats": False}, "draft": {"read_only": True}}

    async def scenario() -> None:
        async with called("sqlite", tmp_path, records=records) as call:
            draft = {
                "record": "draft",
                "fields": {"user": "a", "name": "b"},
                "value": {"text": "a"},
            }
            for operation, body, code in (
                ("sing", {}, "INVALID_SUBJECT"),
                ("get", {}, "MISSING_FIELD"),
                ("get", {"record": "nothing"}, "NOT_FOUND"),
                ("get", {"record": "hidden", "fields": {"name": "a"}}, "FORBIDDEN"),
                ("put", {"record": "recipe", "fields": {"id": "a"}}, "MISSING_FIELD"),
                ("put", draft, "FORBIDDEN"),
                ("put", {"record": "recipe", "colour": 1}, "VALIDATION_ERROR"),
                ("add", {"counter": "views", "fields": {"id": "a"}}, "MISSING_FIELD"),
                ("watch", {"record": "recipe", "subject": "_INBOX_bob.x"}, "INVALID_SUBJECT"),
            ):
                reply = await call(operation, body)
                assert (reply["success"], reply["error_code"]) == (False, code), (operation, reply)
            assert (await call("get", {}, space="a$b"))["error_code"] == "INVALID_SUBJECT"

    asyncio.run(scenario())


def test_a_watch_sends_items_without_private_members(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called("sqlite", tmp_path) as call:
            subject = "keyhouse.changes.recipes.ann.list"
            changes = await call.client.subscribe(subject)
            started = await call("watch", {"record": "recipe", "subject": subject})
            assert started["success"]
            await call("put", {"record": "recipe", "value": PIE})
            await call("delete", {"record": "recipe", "fields": {"id": "pie"}})
            seen = [json.loads((await changes.next_msg(timeout=30)).data) for _ in range(2)]
            assert [(each["n"], each["event"], each["fields"]) for each in seen] == [
                (1, "put", {"id": "pie"}),
                (2, "gone", {"id": "pie"}),
            ]
            assert "secret" not in seen[0]["value"]
            stopped = await call("watch", {"subject": subject, "stop": True})
            assert stopped == {"success": True, "stopped": True}

    asyncio.run(scenario())


def test_the_service_is_found_by_the_micro_protocol(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with called("sqlite", tmp_path) as call:
            reply = await call.client.request("$SRV.INFO.recipes", b"", timeout=30)
            endpoints = {each["subject"] for each in json.loads(reply.data)["endpoints"]}
            assert "keyhouse.recipes.*.patch" in endpoints

    asyncio.run(scenario())


def test_no_schema_has_the_name_of_subjects_that_all_share() -> None:
    """The space `recipes` of a schema `changes` could publish to `keyhouse.changes.recipes.*`, as
    if records of the schema `recipes` had changed."""
    service, _ = space_users(BOX, ["ann"])
    subjects = [each.split(".") for each in (*service.publish, *service.subscribe)]
    shared = {words[1] for words in subjects if words[0] == "keyhouse"} - {BOX.name}
    assert len(shared) >= 2
    for name in shared:
        with pytest.raises(UsageError, match="choose another"):
            check_name(Schema(name, *BOX.records, space=BOX.space))


def test_permissions_of_each_space_are_printed(tmp_path: Path) -> None:
    module = Path(__file__).parent / "support" / "recipes.py"
    (tmp_path / "recipes.py").write_text(module.read_text())
    done = run("acl", "recipes:BOX", "ann", "bob", "--json", cwd=tmp_path)
    service, ann, bob = json.loads(done.stdout)["users"]
    assert service["subscribe"][0] == "keyhouse.recipes.>"
    assert ann["publish"] == ["keyhouse.recipes.ann.*", "keyhouse.recipes.ann.*.8"]
    assert bob["subscribe"] == ["_INBOX_bob.>", "keyhouse.changes.recipes.bob.>"]
    assert "authorization {" in run("acl", "recipes:BOX", "ann", cwd=tmp_path).stdout
    refused = run("acl", "recipes:BOX", "a.b", cwd=tmp_path, code=1)
    assert "letters, digits" in refused.stderr
