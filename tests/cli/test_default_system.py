"""The system that a command works on, if the arguments do not name it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import typer

from keyhouse.cli.app import app
from tests.cli.test_failed_migration import FAILURES, make
from tests.service.schema_service.support import recipes
from tests.support.program import run

STORE = ("--store", "sqlite:rows.db", "--space", "ann")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder whose settings name one system, with a record of it."""
    shutil.copy(recipes.__file__, tmp_path / "recipes.py")
    run("put", "recipes:BOX", "note:a", '"text"', *STORE, cwd=tmp_path)
    (tmp_path / "keyhouse.toml").write_text('systems = ["recipes:BOX"]\n')
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        ["list"],
        ["list", "note:"],
        ["scan"],
        ["count"],
        ["get", "note:a"],
        ["put", "note:b", '"other"'],
        ["delete", "note:a", "--yes"],
        ["explain", "note:a"],
        ["list", "recipes:BOX"],
        ["get", "recipes:BOX", "note:a"],
    ],
    ids=" ".join,
)
def test_the_only_system_of_the_settings_is_the_default(folder: Path, words: list[str]) -> None:
    run(*words, *STORE, cwd=folder)


WORDS = {
    "token": ["--space", "ann"],
    "acl": ["ann"],
    "studio": ["--store", "none"],
    "get": ["note:a"],
    "put": ["note:b", "no JSON"],
    "delete": ["note:a", "--dry-run"],
    "list": [],
    "scan": [],
    "count": [],
    "watch": ["--since", "0", "--count", "1"],
    "spaces": [],
    "stats": [],
    "explain": ["note:a"],
    "verify": [],
    "migrate": ["--dry-run"],
    "convert": ["--to", "", "--yes"],
    "sweep": [],
    "backup": ["none/rows.backup"],
    "restore": ["none.backup", "--dry-run"],
    "export": ["none/rows.jsonl"],
    "import": ["none.jsonl", "--dry-run"],
    "move": ["none", "other"],
    "describe": [],
    "doctor": ["--json"],
}
"""The arguments of each command, besides the system: with them it changes nothing."""

NO_DEFAULT = {"bench"}
"""It writes: it takes the store of a system only if that is named."""

RANDOM = {"acl", "token", "doctor"}
"""Their output has passwords, or the time."""


def test_every_command_with_a_system_takes_the_default() -> None:
    group: Any = typer.main.get_command(app)
    having = {
        name
        for name, command in group.commands.items()
        if any(each.name == "system" for each in getattr(command, "params", []))
    }
    assert having - NO_DEFAULT == set(WORDS)


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with a data folder, which has a record and a secret of tokens. Each test has
    a copy."""
    folder = tmp_path_factory.mktemp("data")
    shutil.copy(recipes.__file__, folder / "recipes.py")
    (folder / "keyhouse.toml").write_text('systems = ["recipes:BOX"]\ndata = "data"\n')
    (folder / "data").mkdir()
    run("put", "recipes:BOX", "note:a", '"text"', "--space", "ann", cwd=folder)
    run("token", "recipes:BOX", "--space", "ann", cwd=folder)
    return folder


@pytest.mark.parametrize("command", WORDS)
def test_a_command_without_a_system_does_what_it_does_with_the_only_one_of_the_settings(
    data_folder: Path, tmp_path: Path, command: str
) -> None:
    """`token`, `spaces`, `sweep` and `doctor` did not take it."""
    shutil.copytree(data_folder, folder := tmp_path / "work")
    space = {"KEYHOUSE_SPACE": "ann"}
    named, unnamed = (
        run(command, *system, *WORDS[command], cwd=folder, code=None, environment=space)
        for system in (["recipes:BOX"], [])
    )
    assert "Missing argument" not in unnamed.stderr and "Name the" not in unnamed.stderr
    assert (unnamed.returncode, unnamed.stderr) == (named.returncode, named.stderr)
    if command not in RANDOM:
        assert unnamed.stdout == named.stdout


def test_bench_takes_no_store_of_the_settings(folder: Path) -> None:
    (folder / "keyhouse.toml").write_text('systems = ["recipes:BOX"]\ndata = "none"\n')
    words = ("bench", "--cases", "read", "--seconds", "0.01", "--json")
    run(*words, cwd=folder)
    assert not (folder / "none").exists()


def test_the_only_argument_is_the_system_whatever_the_environment_names(folder: Path) -> None:
    """With KEYHOUSE_SYSTEM, `keyhouse describe recipes:BOX` was an unexpected argument."""
    other = {"KEYHOUSE_SYSTEM": "rosey"}
    for command in ("describe", "doctor", "spaces"):
        store = STORE[:2] if command != "describe" else ()
        run(command, "recipes:BOX", *store, cwd=folder, environment=other)


SETTINGS = {
    "one": 'systems = ["new:SONGS"]\ndata = "data"\n',
    "several": 'systems = ["old:SONGS", "new:SONGS"]\ndata = "data"\n',
    "with a service": 'systems = ["own:service", "new:SONGS"]\ndata = "data"\n',
    "default folder": 'systems = ["new:SONGS"]\n',
}


@pytest.mark.parametrize("settings", SETTINGS)
def test_doctor_checks_every_system_that_the_settings_name(tmp_path: Path, settings: str) -> None:
    """A service whose migration failed says to run `keyhouse doctor`: it found no problems."""
    make(tmp_path, FAILURES["KeyError"])
    (tmp_path / "own.py").write_text("def service(context):\n    raise NotImplementedError\n")
    (tmp_path / "keyhouse.toml").write_text(SETTINGS[settings])
    if settings == "default folder":
        (tmp_path / "data").rename(tmp_path / "keyhouse-data")
    found = json.loads(run("doctor", "--json", cwd=tmp_path, code=1).stdout)
    parts = {part["part"]: part["facts"] for part in found["findings"]}
    migrations = parts["Rows of new:SONGS"][0]
    assert migrations["state"] == "bad" and "KeyError" in migrations["value"]
    assert ("Rows of old:SONGS" in parts) == (settings == "several")


def test_doctor_before_the_first_start_of_a_service_finds_no_problem(folder: Path) -> None:
    (folder / "keyhouse.toml").write_text('systems = ["recipes:BOX"]\ndata = "none"\n')
    found = " ".join(run("doctor", cwd=folder).stdout.split())
    assert "No problems." in found and "`keyhouse serve` creates it when it starts." in found


@pytest.mark.parametrize(
    ("file", "environment"),
    [
        ("", {"KEYHOUSE_SYSTEMS": "recipes:BOX"}),
        ('systems = ["rosey"]\n', {"KEYHOUSE_SYSTEM": "recipes:BOX"}),
        ("not TOML", {"KEYHOUSE_CONFIG": "other.toml"}),
    ],
)
def test_the_environment_names_it_too(folder: Path, file: str, environment: dict[str, str]) -> None:
    shutil.move(folder / "keyhouse.toml", folder / "other.toml")
    (folder / "keyhouse.toml").write_text(file)
    found = run("list", *STORE, cwd=folder, environment=environment).stdout
    assert "note:a\n" in found


@pytest.mark.parametrize(
    "file", ["", 'systems = ["recipes:BOX", "rosey"]\n', "not TOML", "systems = 3"]
)
def test_none_or_several_are_no_default(folder: Path, file: str) -> None:
    (folder / "keyhouse.toml").write_text(file)
    assert "Missing argument 'SYSTEM'" in run("list", *STORE, cwd=folder, code=2).stderr


def test_another_system_can_be_named(folder: Path) -> None:
    (folder / "notes.py").write_text(
        "from keyhouse import Record, Schema, Space\n"
        "NOTES = Schema('notes', Record(str, 'note:{id}', name='n'), space=Space('a user'))\n"
    )
    rows = ("--store", "sqlite:other.db", "--space", "ann")
    run("put", "notes:NOTES", "note:x", '"x"', *rows, cwd=folder)
    assert run("list", "notes:NOTES", *rows, cwd=folder).stdout == "note:x\n"
    assert "rosey" in run("describe", "rosey", cwd=folder).stdout
