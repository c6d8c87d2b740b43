"""Each user story of the document, by its number, over a real NATS server, on SQLite and on
PostgreSQL.

The document's own code is run as it is written there: `nats` is the client, and it imports `json`.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from nats.errors import NoRespondersError
from structlog.testing import capture_logs

from keyhouse.service import operation_log
from systems.rosey.tests.support.harness import ENGINES, Harness, Live, living
from tests.support.polling import until


@pytest.fixture(params=ENGINES)
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Live:
    return living(request.param, tmp_path, slow_seconds=60)


async def rows(harness: Harness) -> list[tuple[Any, ...]]:
    """The rows of plugins in the table, as an operator sees them."""
    sql = (
        "SELECT plugin_name, key, value FROM plugin_kv_storage"
        " WHERE plugin_name <> 'keyhouse-service' ORDER BY plugin_name, key"
    )
    bare = harness.url.replace("&layout=rosey", "").replace("?layout=rosey", "")
    if bare.startswith("sqlite:"):
        connection = apsw.Connection(bare.removeprefix("sqlite:"))
        try:
            return list(connection.execute(sql))
        finally:
            connection.close()
    pg = await asyncpg.connect(bare)
    try:
        return [tuple(row) for row in await pg.fetch(sql)]
    finally:
        await pg.close()


def test_us_001_store_simple_value(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Store theme preference
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'theme', 'value': 'dark'}).encode())  # fmt: skip

        # Later retrieve it
        response = await nats.request('db.kv.my-plugin.get',
            json.dumps({'key': 'theme'}).encode())  # fmt: skip
        data = json.loads(response.data)
        assert data['exists'] == True  # noqa: E712  # fmt: skip
        assert data['value'] == 'dark'  # fmt: skip

        assert await rows(harness) == [("my-plugin", "theme", '"dark"')]
        for value in ("light", 7, 7.5, True, False, "7", -0.0, 2**64 + 1):
            assert await harness.ask("my-plugin.set", {"key": "theme", "value": value}) == {
                "success": True
            }
            found = await harness.ask("my-plugin.get", {"key": "theme"})
            assert found == {"success": True, "exists": True, "value": value}
            assert repr(found["value"]) == repr(value)
        assert len(await rows(harness)) == 1
        await harness.restart()
        assert (await harness.ask("my-plugin.get", {"key": "theme"}))["value"] == 2**64 + 1

    live(story)


def test_us_002_store_complex_object(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Store complex config
        config = {
            'theme': 'dark',
            'cooldown': 30,
            'enabled_features': ['trivia', 'quotes'],
            'admin_users': ['groberts', 'moderator']
        }  # fmt: skip
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'config', 'value': config}).encode())  # fmt: skip

        # Retrieve and verify
        response = await nats.request('db.kv.my-plugin.get',
            json.dumps({'key': 'config'}).encode())  # fmt: skip
        data = json.loads(response.data)
        assert data['value'] == config  # Deep equality  # fmt: skip

        for value in (
            ["a", "b", "c"],
            {"nested": {"data": [1, None, {"π": "💡\u0000"}]}},
            None,
            [],
            {},
            "",
        ):
            await harness.publish("my-plugin.set", {"key": "any", "value": value})
            found = await harness.ask("my-plugin.get", {"key": "any"})
            assert found == {"success": True, "exists": True, "value": value}
        order = {"z": 1, "a": 2, "m": 3}
        await harness.publish("my-plugin.set", {"key": "any", "value": order})
        assert list((await harness.ask("my-plugin.get", {"key": "any"}))["value"]) == [
            "z",
            "a",
            "m",
        ]

    live(story)


def test_us_003_store_counter(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Initialize counter
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'message_count', 'value': 0}).encode())  # fmt: skip

        # Increment (not atomic in Sprint A)
        response = await nats.request('db.kv.my-plugin.get',
            json.dumps({'key': 'message_count'}).encode())  # fmt: skip
        count = json.loads(response.data)['value']  # fmt: skip
        count += 1
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'message_count', 'value': count}).encode())  # fmt: skip

        found = await harness.ask("my-plugin.get", {"key": "message_count"})
        assert found["value"] == 1 and type(found["value"]) is int
        answers = await asyncio.gather(
            *(harness.ask("my-plugin.incr", {"key": "message_count"}) for _ in range(50))
        )
        assert sorted(answer["value"] for answer in answers) == list(range(2, 52))

    live(story)


def test_us_004_store_temporary_state_with_ttl(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Store game session with 30-minute timeout
        await nats.publish('db.kv.trivia.set',
            json.dumps({
                'key': 'game_abc123',
                'value': {'turn': 'player1', 'score': 0},
                'ttl': 1800  # 30 minutes
            }).encode())  # fmt: skip

        # 29 minutes later - still exists
        await harness.ask("trivia.get", {"key": "game_abc123"})  # the set has been taken
        harness.clock.advance(seconds=29 * 60)
        response = await nats.request('db.kv.trivia.get',
            json.dumps({'key': 'game_abc123'}).encode())  # fmt: skip
        assert json.loads(response.data)['exists'] == True  # noqa: E712  # fmt: skip

        # 31 minutes later - expired
        harness.clock.advance(seconds=2 * 60)
        response = await nats.request('db.kv.trivia.get',
            json.dumps({'key': 'game_abc123'}).encode())  # fmt: skip
        assert json.loads(response.data)['exists'] == False  # noqa: E712  # fmt: skip

        assert await harness.ask("trivia.list") == {
            "success": True,
            "keys": [],
            "count": 0,
            "truncated": False,
        }
        assert len(await rows(harness)) == 1
        await harness.runtime.sweeper.sweep()
        assert await rows(harness) == []
        await harness.publish("trivia.set", {"key": "kept", "value": 1, "ttl": 5})
        await harness.publish("trivia.set", {"key": "kept", "value": 1, "ttl": None})
        await harness.publish("trivia.set", {"key": "kept too", "value": 1})
        await harness.ask("trivia.list")
        harness.clock.advance(seconds=10**9)
        assert (await harness.ask("trivia.list"))["keys"] == ["kept", "kept too"]

    live(story)


def test_us_005_list_plugin_keys(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client
        assert await harness.ask("my-plugin.list", {}) == {
            "success": True,
            "keys": [],
            "count": 0,
            "truncated": False,
        }

        # Store multiple keys
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'config_theme', 'value': 'dark'}).encode())  # fmt: skip
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'config_timeout', 'value': 30}).encode())  # fmt: skip
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'state_active', 'value': True}).encode())  # fmt: skip

        # List all keys
        response = await nats.request('db.kv.my-plugin.list',
            json.dumps({}).encode())  # fmt: skip
        data = json.loads(response.data)
        assert set(data['keys']) == {'config_theme', 'config_timeout', 'state_active'}  # fmt: skip

        # List only config keys
        response = await nats.request('db.kv.my-plugin.list',
            json.dumps({'prefix': 'config_'}).encode())  # fmt: skip
        data = json.loads(response.data)
        assert set(data['keys']) == {'config_theme', 'config_timeout'}  # fmt: skip

        first = await harness.ask("my-plugin.list", {"limit": 2})
        assert (first["keys"], first["count"], first["truncated"]) == (
            ["config_theme", "config_timeout"],
            2,
            True,
        )
        rest = await harness.ask("my-plugin.list", {"limit": 2, "cursor": first["cursor"]})
        assert rest == {"success": True, "keys": ["state_active"], "count": 1, "truncated": False}
        exact = await harness.ask("my-plugin.list", {"limit": 3})
        assert exact["truncated"] is False and "cursor" not in exact

    live(story)


def test_us_006_delete_key(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Store and then delete
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'temp_data', 'value': 'xyz'}).encode())  # fmt: skip

        await nats.publish('db.kv.my-plugin.delete',
            json.dumps({'key': 'temp_data'}).encode())  # fmt: skip

        # Verify deleted
        response = await nats.request('db.kv.my-plugin.get',
            json.dumps({'key': 'temp_data'}).encode())  # fmt: skip
        assert json.loads(response.data)['exists'] == False  # noqa: E712  # fmt: skip

        # Delete again - still succeeds (idempotent)
        await nats.publish('db.kv.my-plugin.delete',
            json.dumps({'key': 'temp_data'}).encode())  # No error  # fmt: skip

        assert await harness.ask("my-plugin.delete", {"key": "temp_data"}) == {
            "success": True,
            "deleted": False,
        }
        await harness.publish("my-plugin.set", {"key": "temp_data", "value": 1, "ttl": 5})
        assert await harness.ask("my-plugin.delete", {"key": "temp_data"}) == {
            "success": True,
            "deleted": True,
        }
        assert await rows(harness) == []
        await harness.publish("my-plugin.set", {"key": "temp_data", "value": 1, "ttl": 5})
        await harness.ask("my-plugin.list")
        harness.clock.advance(seconds=5)
        assert await harness.ask("my-plugin.delete", {"key": "temp_data"}) == {
            "success": True,
            "deleted": False,
        }

    live(story)


def test_us_007_plugin_isolation_enforced(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Plugin "quote-db" stores a key
        await nats.publish('db.kv.quote-db.set',
            json.dumps({'key': 'last_id', 'value': 42}).encode())  # fmt: skip

        # Plugin "trivia" tries to read it
        response = await nats.request('db.kv.trivia.get',
            json.dumps({'key': 'last_id'}).encode())  # fmt: skip
        data = json.loads(response.data)
        assert data['exists'] == False  # Cannot see other plugin's keys  # noqa: E712  # fmt: skip

        # Plugin "trivia" stores its own "last_id"
        await nats.publish('db.kv.trivia.set',
            json.dumps({'key': 'last_id', 'value': 99}).encode())  # fmt: skip

        # Both plugins see their own values
        response = await nats.request('db.kv.quote-db.get',
            json.dumps({'key': 'last_id'}).encode())  # fmt: skip
        assert json.loads(response.data)['value'] == 42  # fmt: skip

        response = await nats.request('db.kv.trivia.get',
            json.dumps({'key': 'last_id'}).encode())  # fmt: skip
        assert json.loads(response.data)['value'] == 99  # fmt: skip

        forged = {"plugin": "quote-db", "plugin_name": "quote-db", "space": "quote-db"}
        assert (await harness.ask("trivia.get", {"key": "last_id", **forged}))["value"] == 99
        assert (await harness.ask("trivia.delete", {"key": "last_id", **forged}))["deleted"] is True
        assert (await harness.ask("trivia.list", {"prefix": "", **forged}))["keys"] == []
        page = await harness.ask("quote-db.list", {"limit": 1})
        await harness.ask("quote-db.set", {"key": "next", "value": 1})
        page = await harness.ask("quote-db.list", {"limit": 1})
        stolen = await harness.ask("trivia.list", {"limit": 1, "cursor": page["cursor"]})
        assert stolen["error_code"] == "VALIDATION_ERROR"
        assert await rows(harness) == [("quote-db", "last_id", "42"), ("quote-db", "next", "1")]
        for other in ("QUOTE-DB", "quote%"):
            assert (await harness.ask(f"db.kv.{other}.get", {"key": "last_id"}))["success"] is False
        with pytest.raises(NoRespondersError):
            await harness.ask("db.kv.quote-db.x.get", {"key": "last_id"})

    live(story)


def test_us_008_value_size_limits_enforced(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Small value - works fine
        await nats.publish('db.kv.my-plugin.set',
            json.dumps({'key': 'small', 'value': 'x' * 100}).encode())  # fmt: skip

        # Large value - rejected
        huge_value = 'x' * 100000  # 100KB  # fmt: skip
        response = await nats.request('db.kv.my-plugin.set',
            json.dumps({'key': 'huge', 'value': huge_value}).encode(),
            timeout=5)  # fmt: skip
        data = json.loads(response.data)
        assert data['success'] == False  # noqa: E712  # fmt: skip
        assert data['error_code'] == 'VALUE_TOO_LARGE'  # fmt: skip
        assert '64' in data['message']  # Mentions limit  # fmt: skip

        assert "100002" in data["message"] and "65536" in data["message"]
        assert (await harness.ask("my-plugin.get", {"key": "small"}))["value"] == "x" * 100
        at = "x" * (65_536 - 2)
        assert (await harness.ask("my-plugin.set", {"key": "at", "value": at}))["success"] is True
        assert (await harness.ask("my-plugin.get", {"key": "at"}))["value"] == at
        assert (await harness.ask("my-plugin.set", {"key": "over", "value": at + "x"}))[
            "error_code"
        ] == "VALUE_TOO_LARGE"
        spaced = (
            b'{"key": "spaced", "value": [' + b" " * 70_000 + b"1]}"
        )  # measured as it is stored
        assert (await harness.ask("my-plugin.set", spaced))["success"] is True
        wide = b'{"key": "wide", "value": "' + b"\\u00e9" * 30_000 + b'"}'
        assert (await harness.ask("my-plugin.set", wide))["success"] is True
        assert (await harness.ask("my-plugin.list"))["keys"] == ["at", "small", "spaced", "wide"]

    live(story)


def test_us_009_clear_error_messages(live: Live) -> None:
    async def story(harness: Harness) -> None:
        nats = harness.client

        # Missing key field
        response = await nats.request('db.kv.my-plugin.get',
            json.dumps({'wrong_field': 'value'}).encode())  # fmt: skip
        data = json.loads(response.data)
        assert data['success'] == False  # noqa: E712  # fmt: skip
        assert data['error_code'] == 'MISSING_FIELD'  # fmt: skip
        assert 'key' in data['message'].lower()  # fmt: skip
        assert data["message"] == "Missing required field: key"

        # Invalid JSON
        response = await nats.request('db.kv.my-plugin.get',
            b'not json at all')  # fmt: skip
        data = json.loads(response.data)
        assert data['error_code'] == 'INVALID_JSON'  # fmt: skip

        wrong = [
            ("my-plugin.set", {"value": 1}, "MISSING_FIELD"),
            ("my-plugin.set", {"key": "a"}, "MISSING_FIELD"),
            ("my-plugin.set", {"key": "", "value": 1}, "VALIDATION_ERROR"),
            ("my-plugin.set", {"key": "a", "value": 1, "ttl": 0}, "VALIDATION_ERROR"),
            ("db.kv.My_Plugin.get", {"key": "a"}, "INVALID_PLUGIN_NAME"),
            ("db.kv.my-plugin.fetch", {"key": "a"}, "INVALID_SUBJECT"),
        ]
        for subject, body, code in wrong:
            answer = await harness.ask(subject, body)
            assert set(answer) == {"success", "error_code", "message"}
            assert (answer["success"], answer["error_code"]) == (False, code), (
                subject,
                body,
                answer,
            )
        for subject in ("db.kv.my-plugin", "db.kv.my.plugin.get"):  # not ours: others may serve it
            with pytest.raises(NoRespondersError):
                await harness.ask(subject, {"key": "a"})
        await harness.engine.close()
        with capture_logs() as logs:
            answer = await harness.ask("my-plugin.get", {"key": "a"})
        assert answer["error_code"] == "DATABASE_ERROR" and "db" not in answer["message"]
        assert [
            line for line in logs if line["log_level"] == "error" and line["exc_info"] is not None
        ]

    live(story)


def test_us_010_works_identically_in_sqlite_and_postgresql(tmp_path: Path) -> None:
    asked: list[tuple[str, object]] = [
        ("p.set", {"key": "key", "value": {"value": 42}}),
        ("p.get", {"key": "key"}),
        ("p.set", {"key": "é", "value": [1.0, -0.0, 1e300, 2**70, "\u0000", {"b": 1, "a": None}]}),
        ("p.set", {"key": "Z", "value": None, "ttl": 60}),
        ("p.set", {"key": "z", "value": None, "ttl": 2**31 - 1}),
        ("p.get", {"key": "é"}),
        ("p.list", {}),
        ("p.list", {"prefix": "Z"}),
        ("p.list", {"limit": 2}),
        ("p.incr", {"key": "n", "by": -3}),
        ("p.incr", {"key": "key"}),
        ("p.scan", {"prefix": "n"}),
        ("p.mget", {"keys": ["n", "nope", "Z"]}),
        ("p.count", {}),
        ("p.touch", {"key": "n", "ttl": 5}),
        ("p.delete", {"key": "Z"}),
        ("p.set", {"key": "a\u0000", "value": 1}),
        ("p.set", {"key": "k" * 256, "value": 1}),
        ("p.set", b'{"key": "a", "value": NaN}'),
        ("p.batch", {"ops": [{"op": "set", "key": "x", "value": 1}, {"op": "incr", "key": "key"}]}),
        ("p.list", {}),
    ]
    answers: dict[str, list[Any]] = {}

    for engine in ENGINES:

        async def story(harness: Harness, engine: str = engine) -> None:
            answers[engine] = [
                json.dumps(await harness.ask(subject, body)) for subject, body in asked
            ]

        living(engine, tmp_path)(story)
    assert answers["sqlite"] == answers["postgres"]


def test_us_011_observability_for_operators(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operation_log, "SLOW_SWEEP_SECONDS", 60)  # as `slow_seconds` of `live`

    async def story(harness: Harness) -> None:
        with capture_logs() as logs:
            await harness.ask("trivia.set", {"key": "game_123", "value": {"a": 1}, "ttl": 60})
            await harness.ask("trivia.get", {"key": "game_123"})
            await harness.ask("trivia.get", {"key": "nothing"})
            await harness.publish("trivia.set", {"key": "bad", "value": 1, "ttl": -1})
            await harness.ask("trivia.list")
        lines = [line for line in logs if line.get("plugin") == "trivia"]
        assert [
            (line["event"], line["log_level"], line.get("key"), line.get("hit")) for line in lines
        ] == [
            ("kv set", "debug", "game_123", None),
            ("kv get", "debug", "game_123", True),
            ("kv get", "debug", "nothing", False),
            ("kv set rejected", "warning", None, None),
            ("kv list", "debug", None, None),
        ]
        assert (
            lines[0]["operation"] == "kv_set"
            and lines[0]["ttl"] == 60
            and lines[0]["latency_ms"] > 0
        )
        assert lines[3]["error"] == "VALIDATION_ERROR"
        harness.clock.advance(seconds=60)
        with capture_logs() as logs:
            await harness.runtime.sweeper.sweep()
        [line] = logs
        assert (line["event"], line["log_level"], line["removed"]) == ("kv cleanup", "info", 1)
        assert harness.metric('rosey_kv_set_total{plugin="trivia"}') == 1
        assert harness.metric('rosey_kv_get_total{plugin="trivia"}') == 2
        assert harness.metric('rosey_kv_list_total{plugin="trivia"}') == 1
        assert harness.metric('rosey_kv_set_duration_seconds_count{plugin="trivia"}') == 1
        assert (
            harness.metric('rosey_kv_errors_total{error_code="VALIDATION_ERROR",plugin="trivia"}')
            == 1
        )
        assert harness.metric("rosey_kv_cleanup_deleted_total") == 1
        assert harness.metric("rosey_kv_cleanup_duration_seconds_count") == 1
        await harness.ask("trivia.set", {"key": "ab", "value": "cd"})
        await harness.runtime.usage_scan.scan()
        assert harness.metric('rosey_kv_keys_total{plugin="trivia"}') == 1
        assert harness.metric('rosey_kv_storage_bytes{plugin="trivia"}') == 6

    live(story)


@pytest.mark.parametrize("engine", ENGINES)
def test_us_012_ttl_cleanup_runs_automatically(engine: str, tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        for number in range(20):
            await harness.publish(
                "trivia.set", {"key": f"s{number}", "value": 1, "ttl": 1 + number % 2}
            )
        await harness.ask("trivia.list")
        harness.clock.advance(seconds=1)
        cleaning = asyncio.ensure_future(harness.runtime.sweeper.run())
        await until(lambda: harness.runtime.metrics.swept >= 10)
        assert len(await rows(harness)) == 10
        cleaning.cancel()
        await harness.engine.close()  # a cleanup that fails is logged, and does not end the task
        with capture_logs() as logs:
            await harness.runtime.sweeper.sweep()
        assert [line["event"] for line in logs] == ["kv cleanup failed"]

    living(engine, tmp_path, sweep_seconds=0.05)(story)
