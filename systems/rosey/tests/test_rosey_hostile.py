"""A plugin that means harm: it can't have the service speak to others, have more than it may, nor
fill the log."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from nats.aio.msg import Msg
from structlog.testing import capture_logs

from keyhouse.errors import UsageError
from keyhouse.service import nats_watches
from keyhouse.service.limits import TENANT_WATCHES_MAX
from keyhouse.settings import read_settings
from keyhouse_rosey.settings import RoseySettings
from systems.rosey.tests.support.harness import ENGINES, Harness, Live, living


@pytest.fixture(params=ENGINES)
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Live:
    return living(request.param, tmp_path)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Live:
    return living("sqlite", tmp_path)


@pytest.mark.parametrize("subject", ["db.kv.evil.nosuch", "db.kv.EVIL.get"])
def test_a_rejection_is_not_sent_to_another_plugins_subject(on_sqlite: Live, subject: str) -> None:
    async def story(harness: Harness) -> None:
        heard = [
            await harness.client.subscribe(each)
            for each in ("_INBOX_quote.>", "db.changes.quote.>")
        ]
        for reply in ("_INBOX_quote.x", "db.changes.quote.mine", "db.kv.quote.set"):
            await harness.client.publish(subject, b"{}", reply=reply)
        rejected = await harness.ask(subject, b"{}")
        assert rejected["success"] is False  # the sender itself gets the rejection
        assert [each.pending_msgs for each in heard] == [0, 0]
        assert (
            harness.metric('rosey_kv_errors_total{error_code="MISSING_FIELD",plugin="quote"}')
            is None
        )

    on_sqlite(story)


def test_an_overload_rejection_is_not_sent_to_another_plugin(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        refused = harness.spec.endpoints[0].rejected
        assert refused is not None
        assert refused("db.kv.evil.get", "_INBOX.x") and refused("db.kv.evil.get", "_INBOX_evil.x")
        assert not refused("db.kv.evil.get", "_INBOX_quote.x") and not refused(
            "db.kv.evil.get", "db.kv.quote.set"
        )

    on_sqlite(story)


def test_many_plugin_names_are_evicted_without_losing_order(
    on_sqlite: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more plugins than are kept at hand, those that are quiet are forgotten, and known again
    when they come."""

    async def story(harness: Harness) -> None:
        monkeypatch.setattr(harness.runtime.tenants, "tenants_max", 3)
        for number in range(40):
            await harness.publish("quote.set", {"key": "k", "value": number})
            assert (await harness.ask(f"evil{number}.set", {"key": "k", "value": number}))[
                "success"
            ]
            assert await harness.ask("quote.get", {"key": "k"}) == {
                "success": True,
                "exists": True,
                "value": number,
            }
        assert (await harness.ask("evil7.get", {"key": "k"}))["value"] == 7
        assert len(harness.runtime.tenants) <= 4

    on_sqlite(story)


def test_concurrent_watch_requests_are_limited(live: Live) -> None:
    async def story(harness: Harness) -> None:
        await harness.client.subscribe("db.changes.evil.>")
        asked = (
            harness.ask("evil.watch", {"subject": f"db.changes.evil.{number}"})
            for number in range(TENANT_WATCHES_MAX + 20)
        )
        answers = await asyncio.gather(*asked)
        assert sum(answer["success"] for answer in answers) == TENANT_WATCHES_MAX
        assert harness.metric("rosey_kv_watches") == TENANT_WATCHES_MAX

    live(story)


def test_watches_of_all_plugins_are_limited(
    on_sqlite: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client allowed to act as any plugin could have as many as there are names."""
    monkeypatch.setattr(nats_watches, "WATCHES_MAX", 3)

    async def story(harness: Harness) -> None:
        await harness.client.subscribe("db.changes.>")
        names = [f"evil{number}" for number in range(5)]
        answers = [
            await harness.ask(f"{name}.watch", {"subject": f"db.changes.{name}.x"})
            for name in names
        ]
        assert [answer.get("error_code") for answer in answers] == [None] * 3 + ["RATE_LIMITED"] * 2
        again = await harness.ask("evil0.watch", {"subject": "db.changes.evil0.x"})
        assert again["success"], "a watch that is started again replaces itself"

    on_sqlite(story)


def test_concurrent_requests_for_one_watch_start_one(live: Live) -> None:
    async def story(harness: Harness) -> None:
        messages = await harness.client.subscribe("db.changes.evil.mine")
        await asyncio.gather(
            *(harness.ask("evil.watch", {"subject": "db.changes.evil.mine"}) for _ in range(20))
        )
        assert harness.metric("rosey_kv_watches") == 1
        for key in ("a", "b"):
            await harness.ask("evil.set", {"key": key, "value": 1})
        changes = [json.loads((await messages.next_msg(timeout=20)).data) for _ in range(2)]
        assert [(change["n"], change["key"]) for change in changes] == [(1, "a"), (2, "b")]

    live(story)


def test_a_quota_works_without_a_usage_scan(tmp_path: Path) -> None:
    """Usage was counted once, at the first write: keys that expired later used up the quota for
    good."""

    async def story(harness: Harness) -> None:
        assert (await harness.ask("trivia.set", {"key": "a", "value": 1, "ttl": 10}))["success"]
        full = await harness.ask("trivia.set", {"key": "b", "value": 1})
        assert full["error_code"] == "QUOTA_EXCEEDED"
        harness.clock.advance(seconds=11)
        assert (await harness.ask("trivia.set", {"key": "b", "value": 1}))["success"]

    living("sqlite", tmp_path, quota_keys=1, usage_scan_seconds=0)(story)


def test_log_lines_have_a_bounded_length(on_sqlite: Live) -> None:
    """A key of a million characters, published without a reply, was a warning of a megabyte, a
    thousand times a second."""

    async def story(harness: Harness) -> None:
        with capture_logs() as logs:
            await harness.client.publish(
                "db.kv.evil.set", json.dumps({"key": "x" * 500_000, "value": 1}).encode()
            )
            assert (await harness.ask("evil.get", {"key": "k"}))["success"] is True
        refused = [line for line in logs if line["event"] == "kv set rejected"]
        assert refused and all(len(json.dumps(line)) < 2_000 for line in refused)

    on_sqlite(story)


def test_a_watch_rejects_a_prefix_longer_than_any_key(on_sqlite: Live) -> None:
    """10,000 watches with a megabyte each were ten gigabytes of memory."""

    async def story(harness: Harness) -> None:
        asked = {"subject": "db.changes.evil.mine", "prefix": "x" * 256}
        assert (await harness.ask("evil.watch", asked))["error_code"] == "VALIDATION_ERROR"
        assert (await harness.ask("evil.watch", asked | {"prefix": "x" * 255}))["success"] is True

    on_sqlite(story)


@pytest.mark.parametrize(
    "given",
    [
        {"prefixes": ["db.kv", "db.kv"]},
        {"prefixes": ["db.kv", "db.kv.more"]},
        {"changes_prefix": "db.kv"},
        {"changes_prefix": "db"},
        {"changes_prefix": "rosey.db.kv.changes"},
    ],
)
def test_overlapping_prefixes_are_rejected(given: dict[str, Any]) -> None:
    """With `changes_prefix = "db"` the plugin `kv` could have its changes sent to
    `db.kv.trivia.set`: as any plugin's request. With `db.kv` the service heard its own changes, and
    answered each of them with another."""
    with pytest.raises(UsageError, match="One of prefixes and changes_prefix begins with another"):
        read_settings(RoseySettings, given, table="rosey")
    apart = {"prefixes": ["db.kv", "db.kvs"], "changes_prefix": "db.kv-changes"}
    assert read_settings(RoseySettings, apart, table="rosey").changes_prefix == "db.kv-changes"


def test_a_service_without_subjects_is_rejected() -> None:
    with pytest.raises(UsageError, match="Invalid setting"):
        read_settings(RoseySettings, {"prefixes": []}, table="rosey")


def test_another_service_below_the_same_prefix_keeps_working(on_sqlite: Live) -> None:
    """Both answered: ours first, with INVALID_SUBJECT, while the other one wrote the value."""

    async def story(harness: Harness) -> None:
        written: list[Any] = []

        async def respond(message: Msg) -> None:
            written.append(json.loads(message.data))
            await message.respond(b'{"success": true, "data": {}}')

        await harness.client.subscribe("rosey.db.kv.set", cb=respond)
        body = {"plugin_name": "p", "key": "k", "value": 1}
        for _ in range(20):
            assert (await harness.ask("rosey.db.kv.set", body))["success"] is True
        assert written == [body] * 20
        assert (await harness.ask("rosey.db.kv.p.set", {"key": "k", "value": 2}))["success"] is True
        assert (await harness.ask("rosey.db.kv.p.get", {"key": "k"}))["value"] == 2

    on_sqlite(story)
