"""The settled rules of all operations: what a key, a value and a TTL may be, the order, and to whom
an answer goes."""

import json
from pathlib import Path
from typing import Any

import pytest

from systems.rosey.tests.support.harness import ENGINES, Harness, Live, living


@pytest.fixture(params=ENGINES)
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Live:
    return living(request.param, tmp_path, heartbeat_seconds=0.3)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Live:
    return living("sqlite", tmp_path)


async def next_message(messages: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads((await messages.next_msg(timeout=20)).data)
    return message


@pytest.mark.parametrize("ttl", [0, -1, True, 1.0, "60", 2**31, [1]])
def test_an_invalid_ttl_is_rejected(on_sqlite: Live, ttl: Any) -> None:
    async def story(harness: Harness) -> None:
        for operation in ("set", "incr", "cas", "touch"):
            body = {"key": "a", "value": 1, "revision": None, "ttl": ttl}
            assert (await harness.ask(f"p.{operation}", body))["error_code"] == "VALIDATION_ERROR"
        assert (await harness.ask("p.count"))["count"] == 0

    on_sqlite(story)


KEYS_THAT_ARE = [
    "a" * 255,
    "😀" * 255,
    "..",
    "a..b",
    ">",
    "*",
    "%",
    "_",
    "/",
    "\\",
    ":",
    " ",
    "\r\n",
    "::1",
    "../",
]
KEYS_THAT_ARE += [
    "%2e%2e",
    "e\u0301",
    "é",
    "\u202e\u200b",
    "quote-db.x",
    "__proto__",
    "'; DROP TABLE plugin_kv_storage; --",
]


def test_any_text_is_a_key_and_is_stored_unchanged(live: Live) -> None:
    async def story(harness: Harness) -> None:
        for number, key in enumerate(KEYS_THAT_ARE):
            assert (await harness.ask("p.set", {"key": key, "value": number}))["success"] is True
        for number, key in enumerate(KEYS_THAT_ARE):
            assert (await harness.ask("p.get", {"key": key}))["value"] == number
        assert (await harness.ask("p.list"))["keys"] == sorted(KEYS_THAT_ARE, key=str.encode)

    live(story)


HOSTILE_VALUES: list[tuple[bytes, str]] = [
    (b'{"key":"a","value":NaN}', "VALIDATION_ERROR"),
    (b'{"key":"a","value":[Infinity]}', "VALIDATION_ERROR"),
    (b'{"key":"a","value":-Infinity}', "VALIDATION_ERROR"),
    (b'{"key":"a","value":1e400}', "VALIDATION_ERROR"),
    (b'{"key":"a","value":"\\ud800"}', "VALIDATION_ERROR"),
    (b'{"key":"a","value":{"\\udc00":1}}', "VALIDATION_ERROR"),
    (b'{"key":"\\ud800","value":1}', "VALIDATION_ERROR"),
    (b'{"key":"a\\u0000","value":1}', "VALIDATION_ERROR"),
    (b'{"key":"","value":1}', "VALIDATION_ERROR"),
    (b'{"key":7,"value":1}', "VALIDATION_ERROR"),
    (b'{"key":null,"value":1}', "VALIDATION_ERROR"),
    (b'{"key":"' + b"a" * 256 + b'","value":1}', "VALIDATION_ERROR"),
    (b'{"key":"a","value":"\xff"}', "INVALID_JSON"),
    (b'\xef\xbb\xbf{"key":"a","value":1}', "INVALID_JSON"),
    ('{"key":"a","value":1}'.encode("utf-16"), "INVALID_JSON"),
    (b'{"key":"a","value":1', "INVALID_JSON"),
    (b'{"key":"a","value":01}', "INVALID_JSON"),
    (b"\x00\x01\x02", "INVALID_JSON"),
    (b'["key","a"]', "VALIDATION_ERROR"),
    (b'"key"', "VALIDATION_ERROR"),
    (b"", "MISSING_FIELD"),
    (b'{"key":"a","value":' + b"[" * 129 + b"]" * 129 + b"}", "VALIDATION_ERROR"),
    (b'{"key":"a","value":' + b'{"a":' * 200_000, "VALIDATION_ERROR"),
    (b'{"key":"a","value":' + b"9" * 4_001 + b"}", "VALIDATION_ERROR"),
    (b'{"key":"a","value":"' + b"x" * 65_535 + b'"}', "VALUE_TOO_LARGE"),
    (b'{"key":"a","value":"' + b"x" * 1_000_000 + b'"}', "VALUE_TOO_LARGE"),
    (b'{"key":"a","value":[' + b"1e15," * 5_000 + b"1]}", "VALUE_TOO_LARGE"),
]


def test_hostile_values_are_rejected_and_not_stored(live: Live) -> None:
    async def story(harness: Harness) -> None:
        for data, code in HOSTILE_VALUES:
            answer = await harness.ask("p.set", data)
            assert answer.get("error_code") == code, (data[:60], answer)
            await harness.client.publish("db.kv.p.set", data)
        assert (await harness.ask("p.count"))["count"] == 0
        fine: list[tuple[bytes, Any]] = [
            (b"[" * 128 + b"]" * 128, None),
            (b"9" * 4_000, int("9" * 4_000)),
            (b'"\\u0000"', "\x00"),
            (b'{"__proto__":null,"a":1,"a":2}', {"__proto__": None, "a": 2}),
            (
                b"{" + b",".join(b'"m%d":%d' % (n, n) for n in range(4_000)) + b"}",
                {f"m{n}": n for n in range(4_000)},
            ),
            (b"-0.0", -0.0),
            (b"1.0", 1.0),
        ]
        for text, value in fine:
            assert (await harness.ask("p.set", b'{"key":"a","value":' + text + b"}"))[
                "success"
            ] is True, text[:40]
            found = (await harness.ask("p.get", {"key": "a"}))["value"]
            assert value is None or repr(found) == repr(value)

    live(story)


def test_reads_without_a_reply_subject_are_ignored_and_writes_applied(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        for operation in ("get", "list", "mget", "scan", "count"):
            await harness.client.publish(f"db.kv.p.{operation}", b"not json")
        await harness.publish("p.incr", {"key": "n"})
        await harness.publish("p.cas", {"key": "c", "value": 1, "revision": None})
        await harness.publish("p.batch", {"ops": [{"op": "set", "key": "b", "value": 1}]})
        assert (await harness.ask("p.list"))["keys"] == ["b", "c", "n"]
        assert harness.metric('rosey_kv_errors_total{error_code="INVALID_JSON",plugin="p"}') is None

    on_sqlite(story)


def test_requests_of_a_plugin_are_applied_in_order(live: Live) -> None:
    async def story(harness: Harness) -> None:
        for number in range(200):
            await harness.publish("p.set", {"key": "same", "value": number})
            await harness.publish("p.incr", {"key": "count"})
        assert (await harness.ask("p.get", {"key": "same"}))["value"] == 199
        assert (await harness.ask("p.get", {"key": "count"}))["value"] == 200
        for number in range(100):
            await harness.publish("p.set", {"key": f"k{number}", "value": number})
            await harness.publish("p.delete", {"key": f"k{number - 50}"})
        assert (await harness.ask("p.count", {"prefix": "k"}))["count"] == 50

    live(story)


def test_setting_over_an_expired_row_starts_a_new_created_at(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        import apsw

        def created() -> str:
            connection = apsw.Connection(harness.url.removeprefix("sqlite:").partition("?")[0])
            value = connection.execute("SELECT created_at FROM plugin_kv_storage").get
            connection.close()
            return str(value)

        await harness.ask("p.set", {"key": "a", "value": 1, "ttl": 10})
        first = created()
        harness.clock.advance(seconds=9)
        await harness.ask("p.set", {"key": "a", "value": 2, "ttl": 10})
        assert created() == first
        harness.clock.advance(seconds=10)
        await harness.ask("p.set", {"key": "a", "value": 3})
        assert created() > first

    on_sqlite(story)


def test_a_reply_is_not_sent_to_another_plugins_subject(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        await harness.ask("p.set", {"key": "a", "value": "forged"})
        heard = [
            await harness.client.subscribe(subject)
            for subject in ("_INBOX_quote.>", "db.changes.quote.>")
        ]
        own = await harness.client.subscribe("_INBOX_p.x")
        body = json.dumps({"key": "a"}).encode()
        for reply in (
            "_INBOX_quote.x",
            "db.changes.quote.x",
            "db.kv.quote.set",
            "rosey.db.kv.quote.set",
            "_INBOX_p.x",
        ):
            await harness.client.publish("db.kv.p.get", body, reply=reply)
        assert (await next_message(own))["value"] == "forged"
        assert [each.pending_msgs for each in heard] == [0, 0]
        assert (await harness.ask("quote.count"))["count"] == 0

    on_sqlite(story)


def test_an_unreadable_row_is_an_error_and_corrupts_no_reply(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        import apsw

        await harness.ask("p.set", {"key": "a", "value": 1})
        connection = apsw.Connection(harness.url.removeprefix("sqlite:").partition("?")[0])
        connection.execute("UPDATE plugin_kv_storage SET value = 'not json'")
        connection.close()
        for operation, body in (
            ("get", {"key": "a"}),
            ("mget", {"keys": ["a"]}),
            ("incr", {"key": "a"}),
        ):
            assert (await harness.ask(f"p.{operation}", body))["error_code"] == "DATABASE_ERROR"
        assert (await harness.ask("p.scan"))["entries"] == []
        assert (await harness.ask("p.set", {"key": "a", "value": 2}))["success"] is True

    on_sqlite(story)
