"""A plugin that means harm: it can't have the service speak to others, have more than it may, nor fill the log."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from keyhouse.errors import EngineError, UnavailableError, UsageError
from keyhouse.settings import read_settings
from keyhouse.systems.rosey import service, watches
from keyhouse.systems.rosey.errors import SubjectError
from keyhouse.systems.rosey.journal import SAMPLED_ABOVE, Journal
from keyhouse.systems.rosey.limits import PLUGIN_WATCHES_MAX
from keyhouse.systems.rosey.settings import Settings
from tests.systems.rosey.harness import ENGINES, Harness, Live, living


@pytest.fixture(params=ENGINES)
def live(request: pytest.FixtureRequest, tmp_path: Path) -> Live:
    return living(request.param, tmp_path)


@pytest.fixture
def on_sqlite(tmp_path: Path) -> Live:
    return living("sqlite", tmp_path)


@pytest.mark.parametrize(
    "subject", ["db.kv.evil.nosuch", "db.kv.evil.a.b", "db.kv.evil", "db.kv.EVIL.get"]
)
def test_a_refusal_goes_to_no_subject_that_is_anothers(on_sqlite: Live, subject: str) -> None:
    async def story(harness: Harness) -> None:
        heard = [
            await harness.client.subscribe(each)
            for each in ("_INBOX_quote.>", "db.changes.quote.>")
        ]
        for reply in ("_INBOX_quote.x", "db.changes.quote.mine", "db.kv.quote.set"):
            await harness.client.publish(subject, b"{}", reply=reply)
        assert (await harness.ask(subject, b"{}"))[
            "success"
        ] is False  # who asks for itself is told
        assert [each.pending_msgs for each in heard] == [0, 0]
        assert (
            harness.metric('rosey_kv_errors_total{error_code="MISSING_FIELD",plugin="quote"}')
            is None
        )

    on_sqlite(story)


def test_what_there_is_no_room_for_is_not_answered_to_another(on_sqlite: Live) -> None:
    async def story(harness: Harness) -> None:
        refused = harness.service.endpoints()[0].rejected
        assert refused is not None
        assert refused("db.kv.evil.get", "_INBOX.x") and refused("db.kv.evil.get", "_INBOX_evil.x")
        assert not refused("db.kv.evil.get", "_INBOX_quote.x") and not refused(
            "db.kv.evil.get", "db.kv.quote.set"
        )

    on_sqlite(story)


def test_names_without_end_fill_no_memory_and_cost_nobody_a_turn(
    on_sqlite: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of more plugins than are kept at hand, those that are quiet are forgotten, and known again when they come."""
    monkeypatch.setattr(service, "PLUGINS_KEPT", 3)

    async def story(harness: Harness) -> None:
        for number in range(40):
            await harness.told("quote.set", {"key": "k", "value": number})
            assert (await harness.ask(f"evil{number}.set", {"key": "k", "value": number}))[
                "success"
            ]
            assert await harness.ask("quote.get", {"key": "k"}) == {
                "success": True,
                "exists": True,
                "value": number,
            }
        assert (await harness.ask("evil7.get", {"key": "k"}))["value"] == 7
        assert len(harness.service._plugins) <= 4 and len(harness.service._ways) <= 4

    on_sqlite(story)


def test_watches_that_are_asked_for_at_once_are_counted(live: Live) -> None:
    async def story(harness: Harness) -> None:
        await harness.client.subscribe("db.changes.evil.>")
        asked = (
            harness.ask("evil.watch", {"subject": f"db.changes.evil.{number}"})
            for number in range(PLUGIN_WATCHES_MAX + 20)
        )
        answers = await asyncio.gather(*asked)
        assert sum(answer["success"] for answer in answers) == PLUGIN_WATCHES_MAX
        assert harness.metric("rosey_kv_watches") == PLUGIN_WATCHES_MAX

    live(story)


def test_watches_of_many_plugins_are_counted_together(
    on_sqlite: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may ask as any plugin could have as many as there are names."""
    monkeypatch.setattr(watches, "WATCHES_MAX", 3)

    async def story(harness: Harness) -> None:
        await harness.client.subscribe("db.changes.>")
        names = [f"evil{number}" for number in range(5)]
        answers = [
            await harness.ask(f"{name}.watch", {"subject": f"db.changes.{name}.x"})
            for name in names
        ]
        assert [answer.get("error_code") for answer in answers] == [None] * 3 + ["RATE_LIMITED"] * 2
        again = await harness.ask("evil0.watch", {"subject": "db.changes.evil0.x"})
        assert again["success"], "one that is begun anew takes its own place"

    on_sqlite(story)


def test_a_watch_that_is_asked_for_twice_at_once_is_one(live: Live) -> None:
    async def story(harness: Harness) -> None:
        messages = await harness.client.subscribe("db.changes.evil.mine")
        await asyncio.gather(
            *(harness.ask("evil.watch", {"subject": "db.changes.evil.mine"}) for _ in range(20))
        )
        ends = 0
        while ends < 19:
            ends += "end" in json.loads((await messages.next_msg(timeout=20)).data)
        assert harness.metric("rosey_kv_watches") == 1

    live(story)


def test_a_flood_of_what_nobody_is_told_of_is_logged_by_samples() -> None:
    with capture_logs() as logs:
        journal = Journal(100, draw=random.Random(1))
        for _ in range(20 * SAMPLED_ABOVE):
            journal.failed("set", "evil", SubjectError("No."), answered=False, fields={})
    assert SAMPLED_ABOVE <= len(logs) < 10 * SAMPLED_ABOVE


def test_while_a_database_is_away_each_failure_is_a_line_and_a_flood_is_sampled() -> None:
    """Each request had a traceback of fifty lines: the log filled the disk, and hid what it was about."""
    away = UnavailableError("The server can't be reached.", server="db").caused_by(
        OSError("refused")
    )
    with capture_logs() as logs:
        journal = Journal(100, draw=random.Random(1))
        for _ in range(20 * SAMPLED_ABOVE):
            journal.failed("set", "trivia", away, answered=True, fields={"key": "a"})
        journal.sweep_failed(away)
        journal.census_failed(away)
    assert SAMPLED_ABOVE <= len(logs) < 10 * SAMPLED_ABOVE
    for line in (logs[0], logs[-2], logs[-1]):
        assert (line["log_level"], line["cause"]) == (
            "error",
            "OSError: refused",
        ) and "exc_info" not in line
        assert line["reason"] == "The server can't be reached. (server='db')"
    assert (logs[0]["error"], logs[0]["plugin"], logs[0]["key"]) == (
        "DATABASE_ERROR",
        "trivia",
        "a",
    )
    for error in (
        ZeroDivisionError(),
        EngineError("The engine failed in a way that it does not know."),
    ):
        with capture_logs() as logs:
            journal.failed("set", "trivia", error, answered=True, fields={})
        assert logs[0]["exc_info"] is error


def test_a_quota_without_a_census_is_refused() -> None:
    """It was counted once, at the first write: what expired after it took up room for good, until nothing more was kept."""
    for quota in ({"quota_keys": 10}, {"quota_bytes": 10}):
        with pytest.raises(UsageError, match=r"set rosey[.]census_seconds") as refused:
            read_settings(Settings, {"census_seconds": 0, **quota}, table="rosey")
        assert refused.value.fields == {
            "census_seconds": 0.0,
            "quota_keys": 0,
            "quota_bytes": 0,
            **quota,
        }
    assert read_settings(Settings, {"census_seconds": 0}, table="rosey").census_seconds == 0
    with pytest.raises(
        UsageError, match="set jwt_keys"
    ):  # what all tokens' settings refuse is refused here too
        read_settings(Settings, {"jwt_algorithm": "RS256"}, table="rosey")


def test_no_line_of_the_log_is_as_long_as_a_plugin_likes(on_sqlite: Live) -> None:
    """A key of a million characters, published without a reply, was a warning of a megabyte, a thousand times a second."""

    async def story(harness: Harness) -> None:
        with capture_logs() as logs:
            await harness.client.publish(
                "db.kv.evil.set", json.dumps({"key": "x" * 500_000, "value": 1}).encode()
            )
            assert (await harness.ask("evil.get", {"key": "k"}))["success"] is True
        refused = [line for line in logs if line["event"] == "kv set refused"]
        assert refused and all(len(json.dumps(line)) < 2_000 for line in refused)

    on_sqlite(story)


def test_a_watch_keeps_no_prefix_that_is_longer_than_any_key(on_sqlite: Live) -> None:
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
def test_prefixes_that_begin_with_one_another_are_refused(given: dict[str, Any]) -> None:
    """With `changes_prefix = "db"` the plugin `kv` could have its changes sent to `db.kv.trivia.set`: as any plugin's
    request. With `db.kv` the service heard its own changes, and answered each of them with another."""
    with pytest.raises(
        UsageError, match="let none of prefixes and changes_prefix begin with another"
    ):
        read_settings(Settings, given, table="rosey")
    apart = {"prefixes": ["db.kv", "db.kvs"], "changes_prefix": "db.kv-changes"}
    assert read_settings(Settings, apart, table="rosey").changes_prefix == "db.kv-changes"


def test_a_service_without_subjects_is_refused() -> None:
    with pytest.raises(UsageError, match="Invalid setting"):
        read_settings(Settings, {"prefixes": []}, table="rosey")
