"""Messages name an install command that works where Keyhouse was installed from."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from keyhouse.advice.install import install_line, line_of, systems_line

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("noted", "line"),
    [
        (None, "pip install 'keyhouse[rocksdb]'"),
        ({"url": "file:///srv/a%20b", "dir_info": {}}, "pip install '/srv/a b[rocksdb]'"),
        (
            {"url": "file:///srv/kh", "dir_info": {"editable": True}},
            "pip install -e '/srv/kh[rocksdb]'",
        ),
        ({"url": "file:///d/k-1.whl", "archive_info": {}}, "pip install '/d/k-1.whl[rocksdb]'"),
        (
            {"url": "https://host/kh", "vcs_info": {"vcs": "git", "commit_id": "1"}},
            "pip install 'keyhouse[rocksdb] @ git+https://host/kh'",
        ),
        (
            {"url": "https://host/k-1.whl", "archive_info": {}},
            "pip install 'keyhouse[rocksdb] @ https://host/k-1.whl'",
        ),
    ],
)
def test_the_line_is_by_how_keyhouse_was_installed(
    noted: dict[str, object] | None, line: str
) -> None:
    """`pip install 'keyhouse[rocksdb]'` was "No matching distribution" for a clone."""
    assert line_of("rocksdb", None if noted is None else json.dumps(noted)) == line


def test_the_line_of_this_environment_names_a_folder_with_the_project() -> None:
    found = re.fullmatch(r"pip install (?:-e )?'(/.+)\[rocksdb\]'", install_line("rocksdb"))
    assert found is not None and (Path(found[1]) / "pyproject.toml").is_file()


def test_every_message_takes_its_line_from_one_place_and_names_a_real_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    for file in (ROOT / "src").rglob("*.py"):
        text = file.read_text()
        assert file.name == "install.py" or "pip install 'keyhouse" not in text, file
        assert set(re.findall(r"install_line\([\"'](\w+)", text)) <= set(extras), file


def test_no_page_names_an_index_that_does_not_have_keyhouse() -> None:
    for file in [ROOT / "README.md", *ROOT.glob("systems/**/*.md"), *ROOT.glob("docs/**/*.md")]:
        if "adr" not in file.parts and "reports" not in file.parts:
            assert "pip install 'keyhouse[" not in file.read_text(), file


def test_the_line_of_a_system_names_its_folder_and_only_a_system_has_one() -> None:
    """`keyhouse serve rosey` where rosey was not installed listed no known name, and no command."""
    assert systems_line().endswith("/systems/'*/")
    for folder in (ROOT / "systems").glob("*/pyproject.toml"):
        found = re.fullmatch(r"pip install '(/.+)'", systems_line(folder.parent.name))
        assert found is not None and (Path(found[1]) / "pyproject.toml").is_file()
    for name in ("clips", "..", "README.md", "rosey/src", "/"):
        assert systems_line(name) == ""


def test_the_quick_start_of_a_system_installs_the_system() -> None:
    """Rosey's and playlist's installed the library alone: `keyhouse serve rosey` was then "No such
    system is installed"."""
    for page in (ROOT / "systems").glob("*/README.md"):
        line, *_ = re.findall("pip install [^`\n]*", page.read_text())
        assert f"./keyhouse/systems/{page.parent.name}" in line, (page, line)
