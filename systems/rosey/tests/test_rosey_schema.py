"""Rosey's keyspace: the keys and values of its document, and a plugin's rows through their life."""

from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import CallerError, DocumentError, KeyFieldError
from keyhouse.store import Store, sweep
from keyhouse_rosey.schema import SCHEMAS, VALUE
from tests.support.store_driver import Drive, holds, key_round_trips, value_round_trips

[SCHEMA] = SCHEMAS

EXAMPLES: list[tuple[str, str, Any]] = [
    ("my-plugin", "setting_name", "value"),
    ("my-plugin", "theme", "dark"),
    ("my-plugin", "config", {"theme": "dark", "timeout": 30}),
    (
        "my-plugin",
        "config",
        {
            "theme": "dark",
            "cooldown": 30,
            "enabled_features": ["trivia", "quotes"],
            "admin_users": ["groberts", "moderator"],
        },
    ),
    ("my-plugin", "items", ["a", "b", "c"]),
    ("my-plugin", "count", 0),
    ("my-plugin", "message_count", 0),
    ("my-plugin", "session_xyz", "data"),
    ("trivia", "game_abc123", {"turn": "player1", "score": 0}),
    ("my-plugin", "config_theme", "dark"),
    ("my-plugin", "config_timeout", 30),
    ("my-plugin", "state_active", True),
    ("my-plugin", "temp_data", "xyz"),
    ("quote-db", "last_id", 42),
    ("trivia", "last_id", 99),
    ("my-plugin", "small", "x" * 100),
    ("my-plugin", "key", {"value": 42}),
    ("trivia", "score", 100),
    ("trivia", "game_123", {"players": ["alice", "bob"], "round": 2}),
    ("quote", "favorite_quote", None),
    ("my-plugin", "session_abc", {"user": "alice", "score": 100}),
    ("my-plugin", "recent_users", ["alice", "bob", "charlie"]),
    ("test-plugin", "key1", "value1"),
    ("test-plugin", "count", 42),
    ("test-plugin", "config", {"nested": {"data": True}, "array": [1, 2, 3]}),
    ("test-plugin", "key", "'; DROP TABLE plugin_kv_storage; --"),
    ("plugin-a", "shared_key", "value_a"),
    ("trivia", "question_count", 42),
    ("trivia", "session", {"user": "alice"}),
    ("test", "mykey", 1.0),
]


@pytest.mark.parametrize(("plugin", "key", "value"), EXAMPLES)
def test_every_example_of_the_document_round_trips(plugin: str, key: str, value: Any) -> None:
    assert SCHEMA.space.bound(plugin) == {}
    key_round_trips(VALUE.template, key, {"key": key})
    value_round_trips(VALUE, value)


@pytest.mark.parametrize(
    "plugin",
    [
        "",
        ".",
        "/etc/passwd",
        "../etc/passwd",
        "'; DROP TABLE--",
        "Trivia",
        "trivia\n",
        "a" * 101,
        "é",
        "a.b",
    ],
)
def test_an_invalid_plugin_name_is_rejected_as_a_space(plugin: str) -> None:
    with pytest.raises(KeyFieldError):
        SCHEMA.space.bound(plugin)


@pytest.mark.parametrize(
    "key", ["a" * 255, "😀" * 255, "%", "_", "*", "a:b", "a b", "..", "\n", "⁦x⁩", "null"]
)
def test_a_key_is_any_text_of_1_to_255_characters(key: str) -> None:
    key_round_trips(VALUE.template, key, {"key": key})


@pytest.mark.parametrize("key", ["", "a" * 256, "😀" * 256, "a\0b", "\ud800", 7, None, b"a"])
def test_an_invalid_key_is_rejected_by_name(key: object) -> None:
    with pytest.raises(KeyFieldError) as refused:
        VALUE.template.build({"key": key})
    assert refused.value.fields["field"] == "key"


@pytest.mark.parametrize(
    "value", [2**64, -(10**3_999), 1.0, -0.0, "\0", {"__proto__": None}, [], {}]
)
def test_a_value_is_any_json_and_keeps_its_type(value: Any) -> None:
    read = VALUE.json.decode(VALUE.json.encode(value))
    assert read == value and repr(read) == repr(value)


@pytest.mark.parametrize(
    "value", [float("nan"), float("inf"), "\ud800", (1, 2), {1: 2}, {"a": object()}, 10**4_001]
)
def test_a_value_without_json_is_rejected(value: Any) -> None:
    with pytest.raises(DocumentError):
        VALUE.json.encode(value)


def test_a_plugins_rows_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        trivia = Store(SCHEMA, engine, "trivia")
        quotes = Store(SCHEMA, engine, "quote-db")
        await trivia.put(VALUE, 99, key="last_id")
        await quotes.put(VALUE, 42, key="last_id")
        await trivia.put(VALUE, {"round": 2}, key="game_123", ttl=1_800)
        await holds(trivia, {"last_id": 99, "game_123": {"round": 2}})
        await holds(quotes, {"last_id": 42})

        await trivia.put(VALUE, None, key="last_id")
        await holds(trivia, {"last_id": None, "game_123": {"round": 2}})
        assert await trivia.get(VALUE, key="nonexistent") is None
        entry = await trivia.entry(VALUE, key="last_id")
        assert entry is not None and entry.record is None and entry.expires is None

        clock.advance(seconds=1_800)
        await holds(trivia, {"last_id": None})
        assert not await trivia.delete(VALUE, key="game_123")
        assert await sweep(engine) == 1

        await trivia.put(VALUE, "data", key="temp", ttl=1)
        await trivia.put(VALUE, "data", key="temp")  # no TTL: clears the earlier one
        clock.advance(seconds=2)
        assert await trivia.get(VALUE, key="temp") == "data"

        assert await trivia.delete(VALUE, key="temp")
        assert not await trivia.delete(VALUE, key="temp")
        assert await trivia.delete(VALUE, key="last_id")
        await holds(trivia, {})
        await holds(quotes, {"last_id": 42})

    drive(work)


def test_a_prefix_is_literal_and_keys_order_by_their_bytes(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "my-plugin")
        for key in (
            "config_theme",
            "config_timeout",
            "configX",
            "Config_",
            "config%",
            "state_active",
            "😀",
            "\ue000",
        ):
            await store.put(VALUE, 1, key=key)
        assert (await store.keys(VALUE, prefix="config_"))[0] == [
            "config_theme",
            "config_timeout",
        ]
        assert (await store.keys(VALUE, prefix="config%"))[0] == ["config%"]
        assert (await store.keys(VALUE, prefix="*"))[0] == []
        every, _ = await store.keys(VALUE)
        assert every == sorted(every, key=str.encode) and len(every) == 8

    drive(work)


@pytest.mark.parametrize("ttl", [0, -1, True, "60", 2**31])
def test_an_invalid_ttl_is_rejected(drive: Drive, ttl: Any) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SCHEMA, engine, "my-plugin")
        with pytest.raises(CallerError):
            await store.put(VALUE, 1, key="a", ttl=ttl)
        await holds(store, {})

    drive(work)
