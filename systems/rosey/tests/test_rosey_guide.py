"""The guide is true: its program prints what it shows, its requests are answered as it says, its
tables are whole."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from keyhouse.errors import KeyhouseError
from keyhouse_rosey.client import PluginStorage
from keyhouse_rosey.messages import OPERATIONS
from systems.rosey.tests.support.harness import Harness, living
from tests.docs.pages import blocks, code, table
from tests.support.nats_servers import nats_server

PAGE = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_first_program_prints_what_it_shows(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        (tmp_path / "plugin.py").write_text(
            blocks(PAGE, "python")[0].replace("nats://127.0.0.1:4222", nats_server().url)
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "plugin.py", cwd=tmp_path, stdout=subprocess.PIPE
        )
        printed, _ = await process.communicate()
        assert printed.decode() == blocks(PAGE, "text")[0]

    living("sqlite", tmp_path)(story)


def exchanges() -> list[tuple[str, str, Any]]:
    lines = "".join(blocks(PAGE, "nats")).splitlines()
    asked = [line.partition(" ") for line in lines[::2]]
    answers = [json.loads(line.removeprefix("-> ")) for line in lines[1::2]]
    return [
        (subject, body, answer) for (subject, _, body), answer in zip(asked, answers, strict=True)
    ]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_every_request_of_the_guide_gets_the_reply_shown(engine: str, tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        await harness.client.subscribe("db.changes.trivia.mine")
        for subject, body, shown in exchanges():
            found = await harness.ask(subject, body.encode())
            for name, value in shown.items():
                if value == "…":
                    found[name] = "…"
            if engine == "sqlite":
                assert found == shown, (subject, body)
            else:  # where revisions count differently
                assert re.sub(r"\d+", "0", json.dumps(found)) == re.sub(
                    r"\d+", "0", json.dumps(shown)
                )

    living(engine, tmp_path)(story)


def test_the_guide_shows_every_operation() -> None:
    assert {subject.rpartition(".")[2] for subject, _, _ in exchanges()} == set(OPERATIONS)


def codes(error: type[KeyhouseError]) -> set[str]:
    return {error.code}.union(*map(codes, error.__subclasses__()))


def test_every_documented_error_code_has_an_exception() -> None:
    documented = {code(row[0]) for row in table(PAGE, "## Errors")}
    assert documented <= codes(KeyhouseError)


def test_every_documented_metric_exists(tmp_path: Path) -> None:
    async def story(harness: Harness) -> None:
        found = set(
            re.findall(r"^# TYPE (\S+) ", generate_latest(harness.metrics).decode(), re.MULTILINE)
        )
        each = {code(row[0]) for row in table(PAGE, "## Metrics")}
        documented = {
            name.replace("<operation>", operation) for name in each for operation in OPERATIONS
        }
        assert {name for name in found if not name.endswith("_created")} == documented

    living("sqlite", tmp_path)(story)


def test_every_call_of_the_client_is_in_the_table() -> None:
    calls = {
        name
        for name, value in vars(PluginStorage).items()
        if callable(value) and not name.startswith("_")
    }
    assert {code(row[0]).partition("(")[0] for row in table(PAGE, "## The client")} == calls
