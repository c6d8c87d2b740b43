"""The payload form: the plugin's name in the body, as Rosey's first database service had it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nats.errors import NoRespondersError

from keyhouse.errors import UsageError
from keyhouse.settings import read_settings
from keyhouse_rosey.payload_form import plugin_named
from keyhouse_rosey.settings import RoseySettings
from systems.rosey.tests.support.harness import Harness, Live, living


@pytest.fixture
def served(tmp_path: Path) -> Live:
    return living("sqlite", tmp_path, payload_prefix="rosey.db.kv")


async def ask(harness: Harness, operation: str, plugin: str = "trivia", **body: Any) -> Any:
    return await harness.ask(f"rosey.db.kv.{operation}", {"plugin_name": plugin, **body})


async def data(harness: Harness, operation: str, plugin: str = "trivia", **body: Any) -> Any:
    reply = await ask(harness, operation, plugin, **body)
    assert reply["success"] is True and set(reply) == {"success", "data"}
    return reply["data"]


def test_a_value_is_set_and_read(served: Live) -> None:
    async def story(harness: Harness) -> None:
        assert await data(harness, "set", key="config", value={"theme": "dark"}) == {}
        got = await data(harness, "get", key="config")
        assert got == {"exists": True, "value": {"theme": "dark"}}

    served(story)


def test_a_value_is_replaced(served: Live) -> None:
    async def story(harness: Harness) -> None:
        await data(harness, "set", key="a", value=1)
        await data(harness, "set", key="a", value=2)
        assert (await data(harness, "get", key="a"))["value"] == 2

    served(story)


def test_a_value_expires_after_ttl_seconds(served: Live) -> None:
    async def story(harness: Harness) -> None:
        await data(harness, "set", key="a", value=1, ttl_seconds=2)
        assert (await data(harness, "get", key="a"))["exists"] is True
        harness.clock.advance(seconds=3)
        assert await data(harness, "get", key="a") == {"exists": False}

    served(story)


@pytest.mark.parametrize("value", ["text", 42, 3.14, True, False, None, [1, 2], {"a": {"b": 1}}])
def test_every_json_type_is_kept(served: Live, value: Any) -> None:
    async def story(harness: Harness) -> None:
        await data(harness, "set", key="a", value=value)
        got = await data(harness, "get", key="a")
        assert got == {"exists": True, "value": value} and type(got["value"]) is type(value)

    served(story)


def test_an_absent_key_does_not_exist(served: Live) -> None:
    async def story(harness: Harness) -> None:
        assert await data(harness, "get", key="nothing") == {"exists": False}

    served(story)


def test_a_key_is_deleted_once(served: Live) -> None:
    async def story(harness: Harness) -> None:
        await data(harness, "set", key="a", value=1)
        assert await data(harness, "delete", key="a") == {"deleted": True}
        assert await data(harness, "delete", key="a") == {"deleted": False}
        assert await data(harness, "get", key="a") == {"exists": False}

    served(story)


def test_keys_are_listed_by_prefix_and_limit(served: Live) -> None:
    async def story(harness: Harness) -> None:
        assert await data(harness, "list") == {"keys": [], "count": 0, "truncated": False}
        for key in ("user:ann", "user:bob", "config:theme"):
            await data(harness, "set", key=key, value=1)
        assert (await data(harness, "list"))["count"] == 3
        assert (await data(harness, "list", prefix="user:"))["keys"] == ["user:ann", "user:bob"]
        page = await data(harness, "list", limit=2)
        assert page["count"] == 2 and page["truncated"] is True
        rest = await data(harness, "list", limit=2, cursor=page["cursor"])
        assert rest["keys"] == ["user:bob"]

    served(story)


def test_errors_are_nested_and_name_the_field(served: Live) -> None:
    wrong: list[tuple[str, object, str, str]] = [
        ("set", b"not JSON", "INVALID_JSON", "JSON"),
        ("set", {"key": "a", "value": 1}, "MISSING_FIELD", "plugin_name"),
        ("set", {"plugin_name": "p", "value": 1}, "MISSING_FIELD", "key"),
        ("set", {"plugin_name": "p", "key": "a"}, "MISSING_FIELD", "value"),
        ("get", {"plugin_name": "p"}, "MISSING_FIELD", "key"),
        ("delete", {"plugin_name": "p"}, "MISSING_FIELD", "key"),
        ("set", {"plugin_name": "p", "key": "a", "value": "x" * 70_000}, "VALUE_TOO_LARGE", "64KB"),
        ("set", {"plugin_name": 1, "key": "a", "value": 1}, "VALIDATION_ERROR", "str"),
        ("set", [1], "VALIDATION_ERROR", "object"),
        ("get", {"plugin_name": "Upper", "key": "a"}, "INVALID_PLUGIN_NAME", "plugin"),
        ("get", {"plugin_name": "p.get", "key": "a"}, "INVALID_SUBJECT", "subject"),
        ("fetch", {"plugin_name": "p", "key": "a"}, "INVALID_SUBJECT", "fetch"),
    ]

    async def story(harness: Harness) -> None:
        for operation, body, code, text in wrong:
            reply = await harness.ask(f"rosey.db.kv.{operation}", body)
            assert set(reply) == {"success", "error"} and reply["success"] is False
            assert set(reply["error"]) == {"code", "message"}
            assert reply["error"]["code"] == code and text in reply["error"]["message"], reply

    served(story)


def test_plugins_do_not_see_each_other(served: Live) -> None:
    async def story(harness: Harness) -> None:
        await data(harness, "set", "ann", key="secret", value=1)
        assert await data(harness, "get", "bob", key="secret") == {"exists": False}
        assert (await data(harness, "list", "bob"))["keys"] == []
        assert await data(harness, "delete", "bob", key="secret") == {"deleted": False}
        assert (await data(harness, "get", "ann", key="secret"))["exists"] is True

    served(story)


def test_both_forms_have_the_same_rows(served: Live) -> None:
    async def story(harness: Harness) -> None:
        await data(harness, "set", key="a", value=1)
        assert (await harness.ask("trivia.get", {"key": "a"}))["value"] == 1
        await asyncio.gather(*(data(harness, "set", key="a", value=n) for n in range(20)))
        assert (await data(harness, "get", key="a"))["value"] == 19

    served(story)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        with pytest.raises(NoRespondersError):
            await ask(harness, "get", key="a")

    living("sqlite", tmp_path)(story)


@pytest.mark.parametrize("prefix", ["db.kv.trivia", "db", "db.changes", "rosey.db.kv.x"])
def test_a_prefix_that_receives_other_messages_is_rejected(prefix: str) -> None:
    with pytest.raises(UsageError, match="payload_prefix"):
        read_settings(RoseySettings, {"payload_prefix": prefix}, table="rosey")


def test_the_plugin_of_a_body_is_found_or_none() -> None:
    assert plugin_named(b'{"value": {"plugin_name": "other"}, "plugin_name": "trivia"}') == "trivia"
    for body in (b"", b"x", b"[]", b'{"plugin_name": 1}', b'{"plugin_name": "%s"}' % (b"x" * 101)):
        assert plugin_named(body) == ""
