"""The typed client, the commands, the import and the data commands over the service."""

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from keyhouse.errors import AccessError, CallerError, NotFoundError
from keyhouse_history.client import History
from keyhouse_history.transfer import import_lines
from systems.history.tests.support.service import EXT, Service, at, serving, token, viewing
from tests.serve.support.serve_process import environment
from tests.support import engine_openers
from tests.support.program import run
from tests.support.threaded_service import SECRET


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("history")
    with serving(engine_openers.sqlite(folder), folder) as service:
        yield service


@pytest.fixture
def history(served: Service) -> Iterator[History]:
    bearer = token(served.clock, sub="p/1", scope="read write history.service")
    with History(served.url, "p/1", token=bearer) as made:
        yield made
        made.forget()


def put(history: History, asset: str, minute: int, progress: int = 10, **options: Any) -> Any:
    moment = datetime(2026, 1, 18, 12, minute, tzinfo=UTC)
    return history.put(
        asset, asset_type="movie", total_time=100, progress=progress, at=moment, **options
    )


def test_the_client_stores_and_reads(history: History) -> None:
    stored = put(history, "a|b", 1, ext=EXT)
    assert stored.applied and stored.entry.attr.progress_percentage == 10
    assert not put(history, "a|b", 1, ext=EXT).applied
    put(history, "c", 2, 100, ext=EXT)
    assert [entry.attr.asset_id for entry in history.entries(page=1)] == ["c", "a|b"]
    assert [entry.attr.asset_id for entry in history.entries(assets=["a|b"])] == ["a|b"]
    assert [entry.attr.asset_id for entry in history.show("1446", "watched")] == ["c"]
    assert [e.attr.asset_id for e in history.show("1446", seasons=["1450"])] == ["c", "a|b"]
    summary = history.show_summary("1446")
    assert summary.current is not None and summary.current.attr.asset_id == "c"
    assert summary.counts == {"inProgress": 1, "completed": 1}
    sport = history.sport("cricket", series="4", team="60092")
    assert [entry.attr.asset_id for entry in sport] == ["c", "a|b"]
    assert history.get("c")[0].m is not None
    assert history.reindex()["repaired"] == 0
    history.delete("c")
    with pytest.raises(NotFoundError):
        history.get("c")


def test_the_client_sends_many_events_and_raises_errors(history: History, served: Service) -> None:
    good, bad = {"assetId": "a", **viewing(1)}, {"assetId": "b"}
    outcomes = history.send([good, bad, {"assetId": 7}])
    assert [each.applied for each in outcomes] == [True, False, False]
    assert [each.asset_id for each in outcomes] == ["a", "b", 7]
    assert outcomes[1].error is not None and outcomes[1].error["code"] == "VALIDATION_ERROR"
    with pytest.raises(CallerError):
        history.put("a", asset_type="x", total_time=1, progress=1, at="today")
    other = History(served.url, "p/1", token=token(served.clock, sub="someone"))
    with other, pytest.raises(AccessError):
        other.get("a")


LINES = [
    {"profileId": "p", "attr": {"assetId": "1", **viewing(5, 10, state="In progress")}},
    {
        "a.assetId": 2,
        "a.assetType": "tv-episode",
        "a.totalTime": "PT1H50M4S",
        "a.progress": "PT1H49M",
        "a.state": "Completed",
        "a.updateTime": at(9),
        "e.sport": "cricket",
        "m.timestamps": [at(1), at(9)],
    },
    {"attr": {"assetId": "3", **viewing(1)}, "ext": {"sport": 5}},
    {"attr": {"assetId": "4", **viewing(1), "totalTime": "long"}},
    "text",
]


def file_of_lines() -> bytes:
    lines = [json.dumps(line).encode() for line in LINES]
    return b"\n".join([*lines, b"{not json", b"", lines[0]])


def test_an_import_reads_old_forms_and_reports_rejected_lines(served: Service) -> None:
    async def work(engine: Any) -> Any:
        return await import_lines(engine, io.BytesIO(file_of_lines()), profile="p")

    report = served.on_engine(work)
    assert (report.applied, report.unchanged) == (2, 1)
    assert [each.line for each in report.rejected] == [3, 4, 5, 6]
    viewer = served.viewer("p")
    try:
        [entry] = viewer.get("2")
        assert entry["attr"]["totalTime"] == 6604 and entry["attr"]["progress"] == 6540
        assert entry["m"] == {"timestamps": [at(1), at(9)]}
        assert viewer.listed("sport/cricket/all") == ["2"]
        assert served.on_engine(work).applied == 0
    finally:
        viewer.close()


def keyhouse(*arguments: str, status: int = 0, folder: Path | None = None) -> str:
    only = environment(KEYHOUSE_HISTORY_JWT_SECRET=SECRET)
    ran = run(*arguments, cwd=folder, code=status, only=only)
    return ran.stdout


def test_the_import_command_prints_what_it_rejected(tmp_path: Path) -> None:
    file = tmp_path / "entries.jsonl"
    file.write_bytes(file_of_lines())
    store = f"sqlite:{tmp_path}/history.db?layout=history"
    printed = keyhouse("history", "import", str(file), "--profile", "p", "--store", store, status=1)
    assert "2 applied, 1 unchanged, 4 rejected." in printed and "Line 4:" in printed
    keyhouse("verify", "history", "--store", store)
    assert "IN_PROGRESS|1" in keyhouse("list", "history", "--space", "p", "--store", store)


def test_an_import_rejects_numbers_that_no_event_could_have(served: Service) -> None:
    lines = [
        {"attr": {"assetId": "1", **viewing(1), "progress": 10**400}},
        {"attr": {"assetId": "2", **viewing(1), "totalTime": f"P{'9' * 400}D"}},
        {"attr": {"assetId": "3", **viewing(1), "totalTime": 10**13}},
        {"attr": {"assetId": True, **viewing(1)}},
        {"attr": {"assetId": "5", **viewing(1)}},
    ]
    file = io.BytesIO(b"\n".join(json.dumps(line).encode() for line in lines))
    report = served.on_engine(lambda engine: import_lines(engine, file, profile="large"))
    assert [each.line for each in report.rejected] == [1, 2, 3, 4] and report.applied == 1


def test_the_import_command_applies_the_settings_of_the_service(tmp_path: Path) -> None:
    (tmp_path / "keyhouse.toml").write_text("[history]\ncompleted_percent = 40\nentries_max = 2\n")
    lines = [{"profileId": "p", "attr": {"assetId": str(n), **viewing(n, 50)}} for n in range(3)]
    (tmp_path / "data").mkdir()
    file = tmp_path / "entries.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    keyhouse("history", "import", str(file), "--store", "data", folder=tmp_path)
    where = ["--space", "p", "--store", "data"]
    listed = keyhouse("list", "history", "--type", "entry", *where, folder=tmp_path)
    assert listed.split() == ["COMPLETED|1", "COMPLETED|2"]


def test_the_iam_command_prints_a_policy() -> None:
    policy = json.loads(keyhouse("history", "iam", "--table", "viewing", "--create"))
    actions = [action for each in policy["Statement"] for action in each["Action"]]
    assert "dynamodb:ConditionCheckItem" in actions and "dynamodb:CreateTable" in actions
    assert "arn:aws:dynamodb:*:*:table/viewing.log" in policy["Statement"][0]["Resource"]


def test_data_commands_work_over_the_service(served: Service, tmp_path: Path) -> None:
    bearer = keyhouse("token", "history", "--customer", "cli", folder=tmp_path).strip()
    where = ["--store", served.url, "--token", bearer]
    value = {"attr": {"assetId": "7", "state": "IN_PROGRESS", **viewing(1)}}
    served.clock.set(int(datetime.now(UTC).timestamp() * 1_000))
    keyhouse("put", "history", "IN_PROGRESS|7", json.dumps(value), *where)
    assert "IN_PROGRESS|7" in keyhouse("list", "history", *where)
    assert json.loads(keyhouse("get", "history", "IN_PROGRESS|7", *where))["attr"]["progress"] == 50
    assert "1" in keyhouse("count", "history", *where)
