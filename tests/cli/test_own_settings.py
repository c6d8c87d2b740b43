"""Settings of one's own schema: `serve` reads them, and no other command minds them."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from keyhouse.cli.app import app
from keyhouse.service.registry import system_names
from tests.serve.support.serve_process import serving
from tests.service.schema_service.support import recipes
from tests.support.program import run
from tools.reference import commands

PLAIN = 'data = "d"\n'
OWN = """
systems = ["recipes:BOX", "rosey"]
[recipes]
rate_per_second = 5.0
[recipes.records.recipe]
http = true
[playlists]
engine = "memory:"
[box-of-notes]
jwt_secret = "0123456789abcdef0123456789abcdef"
"""
VARIABLES = {
    "KEYHOUSE_RECIPES_RATE_BURST": "7",
    "KEYHOUSE_BOX_JWT_SECRET": "0123456789abcdef0123456789abcdef",
    "KEYHOUSE_BOX_OF_NOTES_ENGINE": "memory:",
}
VALUES = {
    "key": "clip:goal",
    "file": "rows.jsonl",
    "url": "sqlite:none.db",
    "source": "sqlite:none.db",
    "target": "sqlite:other.db",
    "action": "current",
    "spaces": "ann",
    "plugins": "trivia",
    "folder": "audio",
    "to": "several",
    "name": "ada",
}
"""The arguments that commands require, other than the system. No store exists: every command that
would run until Ctrl-C ends with that."""

MORE = [
    ["token", "--operator"],
    ["token", "streamkit", "--customer", "1"],
    ["token", "recipes:BOX", "--space", "ann"],
    ["doctor"],
    ["rosey", "acl", "trivia"],
    ["history", "iam", "--table", "history"],
]


def command_lines() -> Iterator[list[str]]:
    """Return every command with the arguments that it requires, of a shipped system and of one's
    own schema."""
    group: Any = typer.main.get_command(app)
    for name, command in commands(group):
        arguments = [each for each in command.params if each.param_type_name == "argument"]
        options = [
            word
            for each in command.params
            if each.param_type_name == "option" and each.required
            for word in (each.opts[0], VALUES.get(each.name, "x"))
        ]
        has_system = any(each.name == "system" for each in arguments)
        for system in ("rosey", "recipes:BOX") if has_system else ("",):
            words = [
                system if each.name == "system" else VALUES[each.name]
                for each in arguments
                if each.required or each.name in ("system", "target")
            ]
            if name != "serve":
                yield [*name.split(), *words, *options]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a schema in `recipes.py`."""
    shutil.copy(recipes.__file__, tmp_path / "recipes.py")
    return tmp_path


@pytest.mark.parametrize("words", [*command_lines(), *MORE], ids=" ".join)
def test_a_table_and_variables_of_an_own_schema_change_no_command(
    folder: Path, words: list[str]
) -> None:
    """With the documented table `[recipes]`, `keyhouse token --operator` was "Unknown setting"."""
    (folder / "keyhouse.toml").write_text(PLAIN)
    before = run(*words, cwd=folder, code=None, environment={"KEYHOUSE_SPACE": "ann"})
    shutil.rmtree(folder / "d", ignore_errors=True)
    shutil.rmtree(folder / "audio", ignore_errors=True)
    (folder / "keyhouse.toml").write_text(PLAIN + OWN)
    after = run(*words, cwd=folder, code=None, environment=VARIABLES | {"KEYHOUSE_SPACE": "ann"})
    assert (after.returncode, after.stderr) == (before.returncode, before.stderr)
    assert "Traceback" not in after.stderr


@pytest.mark.parametrize(
    ("file", "variables"),
    [
        (OWN, {}),
        ("", {"KEYHOUSE_SYSTEMS": "recipes:BOX,rosey", **VARIABLES}),
        (OWN, VARIABLES),
    ],
    ids=["file", "environment", "both"],
)
def test_serve_takes_an_own_schema_from_the_settings(
    folder: Path, file: str, variables: dict[str, str]
) -> None:
    """`systems = ["recipes:BOX"]` in the file, or KEYHOUSE_SYSTEMS, was a KeyError."""
    (folder / "keyhouse.toml").write_text(file)
    with serving(folder, "--nats", "off", **variables) as process:
        assert process.get("/recipes/openapi.json").json()["info"]["title"] == "Recipes"
        assert process.get("/streamkit/openapi.json").status_code == 404
        [ignored] = [line for line in process.log if "ignored" in line] or [{"ignored": []}]
    known = ("recipes", "KEYHOUSE_RECIPES")
    assert not [name for name in ignored["ignored"] if name.strip("[]").startswith(known)]


@pytest.mark.parametrize("by", ["--config", "KEYHOUSE_CONFIG"])
def test_the_modules_of_a_settings_file_are_found_beside_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, by: str
) -> None:
    """They were looked for in the working directory alone: a unit of systemd, which starts in /,
    did not find `recipes.py` beside the file that names it."""
    (folder / "keyhouse.toml").write_text(PLAIN + 'systems = ["recipes:BOX"]\n')
    file, elsewhere = str(folder / "keyhouse.toml"), tmp_path_factory.mktemp("elsewhere")
    given = [by, file] if by.startswith("--") else []
    variables = {} if given else {by: file}
    made = run("token", "--space", "ann", *given, cwd=elsewhere, environment=variables)
    assert made.stdout.count(".") == 2
    with serving(elsewhere, "recipes:BOX", *given, "--nats", "off", **variables) as process:
        assert process.get("/recipes/openapi.json").json()["info"]["title"] == "Recipes"


@pytest.mark.parametrize("system", ["rosey", "recipes:BOX"])
def test_serve_ignores_settings_of_schemas_that_another_process_serves(
    folder: Path, system: str
) -> None:
    (folder / "keyhouse.toml").write_text(PLAIN + OWN)
    with serving(folder, system, "--nats", "off", **VARIABLES) as process:
        [line] = [line for line in process.log if "ignored" in line]
    assert {"[playlists]", "[box-of-notes]", "KEYHOUSE_BOX_JWT_SECRET"} <= set(line["ignored"])
    assert ("[recipes]" in line["ignored"]) is (system == "rosey")


def test_the_log_names_databases_beside_a_schema_that_was_renamed(folder: Path) -> None:
    """It started empty beside `clips.db`, without a word."""
    (folder / "data").mkdir(mode=0o700)
    for name in ("clips", "rosey", "studio"):
        (folder / "data" / f"{name}.db").touch()
    for expected in (["clips.db"], None):  # then it has a file, and is not new
        with serving(folder, "recipes:BOX", "--nats", "off") as process:
            named = [line["databases"] for line in process.log if "databases" in line]
            assert named == [expected] * bool(expected)
        (folder / "log").unlink()


ENGINE = "engine = 'memory:'"
RIGHT = {"http": "docs = true", "studio": "session_hours = 1.0"}
"""A setting of each table that is right; in the others, `ENGINE`."""

MISSPELLED: list[tuple[str, dict[str, str], str]] = [
    (f"{beside}[{name[:2]}{name[3:]}]\nengine = 'memory:'\n", {}, f"[{name}]")
    for name in (*system_names(), "http", "studio", "recipes")
    for beside in ("", f"[{name}]\n{RIGHT.get(name, ENGINE)}\n")
] + [
    ("", {f"KEYHOUSE_{wrong}": "1"}, f"KEYHOUSE_{right}")
    for wrong, right in [
        ("ROSY_SWEEP_SECONDS", "ROSEY_SWEEP_SECONDS"),
        ("HTPP_DOCS", "HTTP_DOCS"),
        ("RECIPS_RATE_BURST", "RECIPES_RATE_BURST"),
        ("LOG_LEVL", "LOG_LEVEL"),
        ("DATA_DIR", "DATA"),
        ("SYSTEM_S", "SYSTEMS"),
        ("DATUM", "DATA"),
    ]
]


@pytest.mark.parametrize(("file", "variables", "nearest"), MISSPELLED)
def test_a_misspelled_table_or_variable_still_stops_serve(
    folder: Path, file: str, variables: dict[str, str], nearest: str
) -> None:
    (folder / "keyhouse.toml").write_text(file)
    words = ("serve", *system_names(), "recipes:BOX", "--http", "127.0.0.1:0")
    failed = run(*words, cwd=folder, code=1, environment=variables).stderr
    assert "Unknown setting" in failed and f"nearest={nearest!r}" in failed
    assert not (folder / "keyhouse-data").exists()


@pytest.mark.parametrize("name", ["data", "http", "nats", "studio", "systems"])
def test_a_schema_cannot_have_the_name_of_a_setting(tmp_path: Path, name: str) -> None:
    """Its table `[data]` would be the setting `data`."""
    (tmp_path / "own.py").write_text(
        "from keyhouse import Record, Schema, Space\n"
        f"OWN = Schema({name!r}, Record(dict, 'a:{{id}}', name='a'), space=Space('x'))\n"
    )
    failed = run("serve", "own:OWN", "--nats", "off", cwd=tmp_path, code=2).stderr
    assert "has the name of a setting" in " ".join(failed.split())


def test_a_table_beside_the_right_one_that_is_not_misspelled_is_of_another_schema(
    folder: Path,
) -> None:
    (folder / "keyhouse.toml").write_text(
        "[recipes]\nrate_burst = 7\n[recipes2]\nrate_burst = 8\n[recipes-test]\nrate_burst = 9\n"
    )
    with serving(folder, "recipes:BOX", "--nats", "off") as process:
        [line] = [line for line in process.log if "ignored" in line]
    assert set(line["ignored"]) == {"[recipes2]", "[recipes-test]"}
