"""Operations beyond the document's four, watches, quotas and rates."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from systems.rosey.tests.support.harness import ENGINES, Harness, Live, living
from tests.support.polling import until


@pytest.fixture(params=ENGINES)
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Live:
    return living(request.param, tmp_path, heartbeat_seconds=0.3)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Live:
    return living("sqlite", tmp_path)


async def next_message(messages: Any) -> dict[str, Any]:
    message: dict[str, Any] = json.loads((await messages.next_msg(timeout=20)).data)
    return message


# Operations


def test_both_prefixes_are_the_same_keys(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        await harness.ask("rosey.db.kv.trivia.set", {"key": "a", "value": 1})
        assert (await harness.ask("db.kv.trivia.get", {"key": "a"}))["value"] == 1

    on_sqlite(story)


def test_mget_returns_values_and_missing_keys(live: Live) -> None:
    async def story(harness: Harness) -> None:
        await harness.ask("p.set", {"key": "a", "value": None})
        await harness.publish("p.set", {"key": "b", "value": [1.0]})
        answer = await harness.ask("p.mget", {"keys": ["b", "zz", "a", "b"]})
        assert answer == {"success": True, "values": {"b": [1.0], "a": None}, "missing": ["zz"]}
        assert (await harness.ask("p.mget", {"keys": []}))["values"] == {}
        assert (await harness.ask("p.mget", {}))["error_code"] == "MISSING_FIELD"
        assert (await harness.ask("p.mget", {"keys": "ab"}))["error_code"] == "VALIDATION_ERROR"
        assert (await harness.ask("p.mget", {"keys": [f"k{n}" for n in range(1_001)]}))[
            "error_code"
        ] == "VALUE_TOO_LARGE"

    live(story)


def test_incr_adds_keeps_the_ttl_and_rejects_other_values(live: Live) -> None:
    async def story(harness: Harness) -> None:
        assert await harness.ask("p.incr", {"key": "n"}) == {"success": True, "value": 1}
        assert (await harness.ask("p.incr", {"key": "n", "by": -5, "ttl": 10}))["value"] == -4
        assert (await harness.ask("p.incr", {"key": "n"}))["value"] == -3
        harness.clock.advance(seconds=10)  # the third has kept the ttl of the second
        assert (await harness.ask("p.incr", {"key": "n"}))["value"] == 1
        for value in ("1", 1.0, None, True, [1]):
            await harness.ask("p.set", {"key": "other", "value": value})
            assert (await harness.ask("p.incr", {"key": "other"}))["error_code"] == "CONFLICT"
        assert (await harness.ask("p.incr", {"key": "n", "by": 2**63}))["error_code"] == "CONFLICT"
        assert (await harness.ask("p.incr", {"key": "n", "by": 1.5}))[
            "error_code"
        ] == "VALIDATION_ERROR"
        assert (await harness.ask("p.get", {"key": "n"}))["value"] == 1

    live(story)


def test_cas_sets_only_at_the_expected_revision(live: Live) -> None:
    async def story(harness: Harness) -> None:
        first = await harness.ask("p.cas", {"key": "a", "value": 1, "revision": None})
        found = await harness.ask("p.get", {"key": "a", "revision": True})
        assert found == {"success": True, "exists": True, "value": 1, "revision": first["revision"]}
        assert (await harness.ask("p.cas", {"key": "a", "value": 2, "revision": None}))[
            "error_code"
        ] == "CONFLICT"
        second = await harness.ask("p.cas", {"key": "a", "value": 2, "revision": first["revision"]})
        assert second["revision"] > first["revision"]
        lost = await harness.ask("p.cas", {"key": "a", "value": 3, "revision": first["revision"]})
        assert lost["error_code"] == "CONFLICT"
        assert (await harness.ask("p.cas", {"key": "a", "value": 3}))[
            "error_code"
        ] == "MISSING_FIELD"
        assert (await harness.ask("p.get", {"key": "a"}))["value"] == 2
        races = [
            harness.ask("p.cas", {"key": "a", "value": n, "revision": second["revision"]})
            for n in range(20)
        ]
        assert sum(answer["success"] for answer in await asyncio.gather(*races)) == 1

    live(story)


def test_touch_changes_only_the_expiry(live: Live) -> None:
    async def story(harness: Harness) -> None:
        assert await harness.ask("p.touch", {"key": "a", "ttl": 5}) == {
            "success": True,
            "exists": False,
        }
        await harness.ask("p.set", {"key": "a", "value": {"x": 1}, "ttl": 5})
        assert await harness.ask("p.touch", {"key": "a", "ttl": 100}) == {
            "success": True,
            "exists": True,
        }
        harness.clock.advance(seconds=99)
        assert (await harness.ask("p.get", {"key": "a"}))["value"] == {"x": 1}
        await harness.ask("p.touch", {"key": "a", "ttl": None})
        harness.clock.advance(seconds=10**8)
        assert (await harness.ask("p.get", {"key": "a"}))["exists"] is True
        assert (await harness.ask("p.touch", {"key": "a"}))["error_code"] == "MISSING_FIELD"

    live(story)


def test_a_batch_is_all_or_nothing(live: Live) -> None:
    async def story(harness: Harness) -> None:
        await harness.ask("p.set", {"key": "old", "value": "x"})
        done = await harness.ask(
            "p.batch",
            {
                "ops": [
                    {"op": "set", "key": "a", "value": 1, "ttl": 60},
                    {"op": "incr", "key": "a", "by": 2},
                    {"op": "delete", "key": "old"},
                    {"op": "delete", "key": "never"},
                    {"op": "cas", "key": "new", "value": [], "revision": None},
                    {"op": "touch", "key": "never", "ttl": 1},
                ]
            },
        )
        results = [{}, {"value": 3}, {"deleted": True}, {"deleted": False}, {}, {"exists": False}]
        assert done["results"] == results
        assert (await harness.ask("p.get", {"key": "new", "revision": True}))["revision"] == done[
            "revision"
        ]
        refused: list[tuple[dict[str, Any], str]] = [
            ({"op": "cas", "key": "a", "value": 1, "revision": None}, "CONFLICT"),
            ({"op": "incr", "key": "new"}, "CONFLICT"),
            ({"op": "get", "key": "a"}, "VALIDATION_ERROR"),
            ({"key": "a"}, "MISSING_FIELD"),
            ({"op": "set", "key": "a"}, "MISSING_FIELD"),
            ({"op": "set", "key": "", "value": 1}, "VALIDATION_ERROR"),
            ({"op": "set", "key": "a", "value": "x" * 65_535}, "VALUE_TOO_LARGE"),
        ]
        for op, code in refused:
            answer = await harness.ask(
                "p.batch", {"ops": [{"op": "set", "key": "a", "value": "no"}, op]}
            )
            assert answer["error_code"] == code, (op, answer)
        assert (await harness.ask("p.mget", {"keys": ["a", "new"]}))["values"] == {
            "a": 3,
            "new": [],
        }

    live(story)


def test_a_batch_that_writes_nothing_has_no_revision(live: Live) -> None:
    """It had revision 0, which is not a revision: a watch since it starts with the oldest
    change."""

    async def story(harness: Harness) -> None:
        await harness.ask("p.set", {"key": "a", "value": 1})
        for ops in (
            [],
            [{"op": "delete", "key": "never"}, {"op": "touch", "key": "never", "ttl": 1}],
        ):
            answer = await harness.ask("p.batch", {"ops": ops})
            assert (
                answer["success"] is True
                and len(answer["results"]) == len(ops)
                and "revision" not in answer
            )

    live(story)


def test_an_unknown_batch_operation_is_rejected_with_the_known_ones(on_sqlite: Live) -> None:
    """It was answered with `Invalid enum value 'get'`."""

    async def story(harness: Harness) -> None:
        answer = await harness.ask("p.batch", {"ops": [{"op": "get", "key": "a"}]})
        assert answer["error_code"] == "VALIDATION_ERROR"
        assert answer["message"] == (
            "No such operation in a batch."
            " (op='get', known=['set', 'delete', 'incr', 'cas', 'touch'])"
        )

    on_sqlite(story)


def test_scan_count_and_list_page_through_all_with_exact_ends(live: Live) -> None:
    async def story(harness: Harness) -> None:
        keys = sorted(
            [f"k{number:03d}" for number in range(120)] + ["K", "k%", "k_", "é", "\ue000", "😀"]
        )
        ops = [{"op": "set", "key": key, "value": {"of": key}} for key in keys]
        await harness.ask("p.batch", {"ops": ops})
        assert (await harness.ask("p.count"))["count"] == len(keys)
        assert (await harness.ask("p.count", {"prefix": "k0"}))["count"] == 100
        assert (await harness.ask("p.list", {"prefix": "k%"}))["keys"] == ["k%"]
        for operation, field in (("list", "keys"), ("scan", "entries")):
            found: list[Any] = []
            cursor = None
            while True:
                page = await harness.ask(f"p.{operation}", {"limit": 42, "cursor": cursor})
                assert page["count"] == len(page[field])
                found += page[field]
                assert page["truncated"] is ("cursor" in page)
                if (cursor := page.get("cursor")) is None:
                    break
            assert [each if isinstance(each, str) else each["key"] for each in found] == keys
        assert found[0]["value"] == {"of": found[0]["key"]} and found[0]["revision"] > 0
        assert (await harness.ask("p.list", {"limit": 10**9}))["count"] == len(keys)
        for limit in (0, -1, 1.5, "5", True, None):
            assert (await harness.ask("p.list", {"limit": limit}))[
                "error_code"
            ] == "VALIDATION_ERROR"
        page = await harness.ask("p.list", {"limit": 5})
        for cursor in ("", "x", page["cursor"] + "x", page["cursor"][:-2]):
            assert (await harness.ask("p.list", {"cursor": cursor}))[
                "error_code"
            ] == "VALIDATION_ERROR"
        other = await harness.ask("p.list", {"prefix": "k", "cursor": page["cursor"]})
        assert other["error_code"] == "VALIDATION_ERROR"

    live(story)


def test_a_reply_that_would_not_fit_is_truncated(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        value = "x" * 60_000
        for number in range(20):
            await harness.publish("p.set", {"key": f"{number:02d}" + "é" * 200, "value": value})
        page = await harness.ask("p.scan", {})
        assert page["truncated"] is True and 14 <= page["count"] < 20
        rest = await harness.ask("p.scan", {"cursor": page["cursor"]})
        assert rest["truncated"] is False and page["count"] + rest["count"] == 20
        assert rest["entries"][0]["key"] > page["entries"][-1]["key"]
        every = [entry["key"] for entry in page["entries"] + rest["entries"]]
        assert (await harness.ask("p.mget", {"keys": every}))["error_code"] == "VALUE_TOO_LARGE"

    on_sqlite(story)


def test_a_scan_that_is_cut_behind_unreadable_rows_repeats_no_entry(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        import apsw

        keys = [f"{number:02d}" for number in range(24)]
        for key in keys:
            await harness.ask("p.set", {"key": key, "value": "x" * 60_000})
        connection = apsw.Connection(harness.url.removeprefix("sqlite:").partition("?")[0])
        connection.execute("UPDATE plugin_kv_storage SET value = 'not json' WHERE key < '05'")
        connection.close()
        seen: list[str] = []
        body: dict[str, Any] = {}
        while True:
            page = await harness.ask("p.scan", body)
            seen += [entry["key"] for entry in page["entries"]]
            if "cursor" not in page:
                break
            body = {"cursor": page["cursor"]}
        assert seen == keys[5:]

    on_sqlite(story)


# Watches


def test_a_watch_sends_changes_in_order_until_nobody_listens(live: Live) -> None:
    async def story(harness: Harness) -> None:
        messages = await harness.client.subscribe("db.changes.p.mine")
        started = await harness.ask("p.watch", {"subject": "db.changes.p.mine", "prefix": "a"})
        assert started["success"] is True
        await harness.publish("p.set", {"key": "a1", "value": None})
        await harness.publish("p.set", {"key": "b", "value": "not watched"})
        await harness.ask("p.delete", {"key": "a1"})
        await harness.ask("other.set", {"key": "a", "value": "another plugin's"})
        await harness.ask("p.set", {"key": "a2", "value": 2, "ttl": 1})
        changes: list[dict[str, Any]] = []
        while len(changes) < 2 or changes[-1].get("key") != "a2":
            change = await next_message(messages)
            if "heartbeat" not in change:
                changes.append(change)
        assert all(each["key"].startswith("a") for each in changes)
        assert [each["n"] for each in changes] == sorted(each["n"] for each in changes)
        assert changes[-1]["value"] == 2 and changes[-1]["deleted"] is False
        assert any(
            each["key"] == "a1" and each["deleted"] and "value" not in each for each in changes
        )
        assert harness.metric("rosey_kv_watches") == 1
        assert (await harness.ask("p.watch", {"subject": "db.changes.p.mine", "stop": True}))[
            "stopped"
        ] is True
        while "end" not in (message := await next_message(messages)):
            pass
        assert message["end"] == "stopped"
        again = await harness.ask(
            "p.watch", {"subject": "db.changes.p.mine", "since": started["revision"]}
        )
        assert again["revision"] == started["revision"]
        while "heartbeat" in (message := await next_message(messages)):
            pass  # one may come before the first change
        assert message["revision"] > started["revision"]
        await messages.unsubscribe()
        await until(lambda: harness.metric("rosey_kv_watches") == 0)

    live(story)


@pytest.mark.parametrize(
    "subject",
    [
        "chat.out",
        "_INBOX.x",
        "_INBOX_q.x",
        "_INBOX_p",
        "_INBOX_p.*",
        "_INBOX_p.>",
        "db.changes.q.x",
        "db.changes.p.",
        "db.kv.p.set",
        "$SYS.x",
        "_INBOX_p.a b",
        "_INBOX_p.a\r\nPUB x 1",
        "",
        "_INBOX_p." + "a" * 300,
    ],
)
def test_changes_are_sent_only_to_the_plugins_own_subjects(on_sqlite: Live, subject: str) -> None:
    async def story(harness: Harness) -> None:
        assert (await harness.ask("p.watch", {"subject": subject}))[
            "error_code"
        ] == "INVALID_SUBJECT"
        assert (await harness.ask("p.watch", {}))["error_code"] == "MISSING_FIELD"

    on_sqlite(story)


# Allowances


@pytest.mark.parametrize("engine", ENGINES)
def test_a_quota_of_keys_holds_under_concurrency_and_for_each_plugin(
    engine: str, tmp_path: Path
) -> None:
    async def story(harness: Harness) -> None:
        answers = await asyncio.gather(
            *(harness.ask("p.set", {"key": f"k{n}", "value": n}) for n in range(30))
        )
        codes = [answer.get("error_code") for answer in answers]
        assert codes.count(None) == 10 and codes.count("QUOTA_EXCEEDED") == 20
        assert (await harness.ask("p.count"))["count"] == 10
        kept = (await harness.ask("p.list"))["keys"][0]
        assert (await harness.ask("p.set", {"key": kept, "value": "again"}))["success"] is True
        assert (await harness.ask("p.incr", {"key": "more"}))["error_code"] == "QUOTA_EXCEEDED"
        assert (await harness.ask("p.delete", {"key": kept}))["deleted"] is True
        assert (await harness.ask("p.incr", {"key": "more"}))["value"] == 1
        over = {"ops": [{"op": "set", "key": f"z{n}", "value": 1} for n in range(2)]}
        assert (await harness.ask("p.batch", over))["error_code"] == "QUOTA_EXCEEDED"
        assert (await harness.ask("q.set", {"key": "own", "value": 1}))["success"] is True
        await harness.restart()
        assert (await harness.ask("p.set", {"key": "new", "value": 1}))[
            "error_code"
        ] == "QUOTA_EXCEEDED"

    living(engine, tmp_path, quota_keys=10)(story)


def test_a_quota_of_bytes_counts_keys_and_values(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        assert (await harness.ask("p.set", {"key": "a" * 40, "value": "b" * 50}))[
            "success"
        ] is True  # 92
        assert (await harness.ask("p.set", {"key": "b", "value": "b" * 10}))[
            "error_code"
        ] == "QUOTA_EXCEEDED"
        assert (await harness.ask("p.set", {"key": "b", "value": "b" * 5}))["success"] is True  # 8
        assert (await harness.ask("p.set", {"key": "a" * 40, "value": ""}))["success"] is True
        assert (await harness.ask("p.set", {"key": "c", "value": "b" * 40}))["success"] is True

    living("sqlite", tmp_path, quota_bytes=100)(story)


def test_rates_are_per_plugin(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        answers = [await harness.ask("p.get", {"key": "a"}) for _ in range(8)]
        assert [answer.get("error_code") for answer in answers] == [None] * 5 + ["RATE_LIMITED"] * 3
        assert (await harness.ask("q.get", {"key": "a"}))["success"] is True
        harness.clock.advance(seconds=1)
        assert (await harness.ask("p.mget", {"keys": ["a", "b", "c"]}))[
            "error_code"
        ] == "RATE_LIMITED"
        harness.clock.advance(seconds=1)
        assert (await harness.ask("p.mget", {"keys": ["a", "b"]}))["success"] is True

    living("sqlite", tmp_path, rate_per_second=2, rate_burst=5)(story)


def test_a_request_that_costs_more_than_the_burst_waits_for_a_full_one(tmp_path: Path) -> None:
    """Its message and its work were charged one after the other, and the work alone was bounded by
    the burst: with `rate_burst` of 300 or less, a watch was rejected forever."""

    async def story(harness: Harness) -> None:
        subject = {"subject": "db.changes.p.mine"}
        assert (await harness.ask("p.watch", subject))["success"] is True
        assert (await harness.ask("p.watch", subject))["error_code"] == "RATE_LIMITED"
        keys = {"keys": [f"k{number}" for number in range(100)]}
        assert (await harness.ask("q.mget", keys))["success"] is True
        assert (await harness.ask("q.mget", keys))["error_code"] == "RATE_LIMITED"

    living("sqlite", tmp_path, rate_per_second=2, rate_burst=5)(story)
