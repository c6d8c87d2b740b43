"""The system that a command works on, if the arguments do not name it."""

import shutil
from pathlib import Path

import pytest

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
