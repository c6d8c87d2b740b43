"""Data commands through a service whose settings close a record to its callers."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.support.serve_process import Serving, serving
from tests.service.schema_service.support import recipes
from tests.support.program import run

CLOSED = "hidden"
LEFT_OUT = f"Left out, since the service closes it to its callers: {CLOSED}\n"
PIE = '{"title": "Pie", "slug": "pie"}'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("closed")
    shutil.copy(recipes.__file__, folder / "recipes.py")
    closed = f"[recipes.records.{CLOSED}]\nhttp = false\nnats = false\n"
    (folder / "keyhouse.toml").write_text(closed)
    return folder


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Serving]:
    with serving(folder, "recipes:BOX") as process:
        yield process


@pytest.fixture(scope="module", params=["http", "nats"])
def at(folder: Path, service: Serving, request: pytest.FixtureRequest) -> list[str]:
    """The options of a running service that has a record."""
    token = run("token", "recipes:BOX", "--space", "ann", "--data", "data", cwd=folder).stdout
    at = ["--store", service.http, "--token", token.strip()]
    if request.param == "nats":
        at = ["--store", service.nats, "--space", "ann"]
    run("put", "recipes:BOX", "recipe:pie", PIE, *at, cwd=folder)
    return at


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["list"], "recipe:pie\n"),
        (["scan"], "recipe:pie\t"),
        (["count"], "1\n"),
        (["watch", "--since", "0", "--count", "1"], "put\trecipe:pie"),
    ],
)
def test_the_other_records_are_read_and_the_closed_one_is_named(
    command: list[str], output: str, folder: Path, at: list[str]
) -> None:
    """They ended with an error: a list of every record of the schema is requested."""
    name, *options = command
    done = run(name, "recipes:BOX", *options, *at, cwd=folder)
    assert output in done.stdout and LEFT_OUT in done.stderr
    one = run(name, "recipes:BOX", *options, "--type", "recipe", *at, cwd=folder)
    assert output in one.stdout and CLOSED not in one.stderr
    closed = run(name, "recipes:BOX", *options, "--type", CLOSED, *at, cwd=folder, code=1)
    assert "The settings of the service close this record to its callers" in closed.stderr
    beside = run(name, "recipes:BOX", "recipe:", *options, *at, cwd=folder)
    assert output in beside.stdout and CLOSED not in beside.stderr


@pytest.mark.parametrize("command", [["get"], ["put"], ["delete", "--yes"]])
def test_one_closed_record_is_not_absent_but_closed(
    command: list[str], folder: Path, at: list[str]
) -> None:
    name, *options = command
    key = [f"{CLOSED}:a", *(['{"text": "a"}'] if name == "put" else [])]
    done = run(name, "recipes:BOX", *key, *options, *at, cwd=folder, code=1)
    assert "The settings of the service close this record to its callers." in done.stderr
