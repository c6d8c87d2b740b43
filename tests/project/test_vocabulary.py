"""Prose and names use the field's words (`vocabulary.py`), and a class name has one meaning."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.project.vocabulary import check, check_markdown, check_python

ROOT = Path(__file__).parents[2]
CHECKED = ("src", "tests", "benchmarks", "examples", "tools", "docs", "*.md")

SELF = ("tests/project/vocabulary.py", "tests/project/test_vocabulary.py")
"""They contain the banned words."""

OWN_WORDS = re.compile(r"engines/|keyhouse_\w+/(records|schema)\.py")
"""An engine's classes are its own, and a system's records have the names of its document."""


def checked_files() -> list[Path]:
    files = [
        file
        for pattern in CHECKED
        for path in ROOT.glob(pattern)
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
        if file.suffix in (".py", ".md")
    ]
    return [file for file in files if not is_below(file, SELF)]


def is_below(file: Path, paths: tuple[str, ...]) -> bool:
    name = str(file.relative_to(ROOT))
    return any(name == path or name.startswith(f"{path}/") for path in paths)


def test_prose_and_names_use_the_fields_words() -> None:
    violations = [str(violation) for file in checked_files() for violation in check(file)]
    assert not violations, "\n" + "\n".join(violations)


def class_names(root: Path) -> dict[str, list[str]]:
    """Return the modules of each public class name."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(root.rglob("*.py")):
        module = str(path.relative_to(root))
        if OWN_WORDS.match(module):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules[node.name].append(module)
    return modules


def test_no_class_name_is_used_twice() -> None:
    names = class_names(ROOT / "src" / "keyhouse")
    found = {
        # the synchronous façade has the names of the asynchronous classes, on purpose
        name: [module for module in modules if not module.startswith("sync/")]
        for name, modules in names.items()
    }
    assert {name: modules for name, modules in found.items() if len(modules) > 1} == {}


# Each rule can fail.


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ('"""What is stored."""\n', "What is stored."),
        ('def f():\n    """Return it. Whoever asks waits."""\n', "Whoever"),
        ("# the row is mended\n", "mended"),
        ("# so it goes\n# on\n", "goes on"),
        ("def test_a_key_that_is_no_text(): ...\n", "is no text"),
        ('raise ValueError("It cannot be that.")\n', "cannot be that"),
        ("_told = 1\n", "_told"),
        ("class PatienceError: ...\n", "PatienceError"),
        ("def test_a_commit_goes_on(): ...\n", "goes on"),
    ],
)
def test_a_violation_in_python_is_caught(text: str, caught: str) -> None:
    violations = [what for _, what, _ in check_python(text)]
    assert any(caught in what for what in violations), violations


@pytest.mark.parametrize(
    ("text", "caught"),
    [
        ("# Heading\n\nWhat is kept is small.\n", "What is kept"),
        ("- an item that is mended\n", "mended"),
        ("| a cell | is begun |\n", "begun"),
    ],
)
def test_a_violation_in_markdown_is_caught(text: str, caught: str) -> None:
    violations = [what for _, what, _ in check_markdown(text)]
    assert any(caught in what for what in violations), violations


@pytest.mark.parametrize(
    "text",
    [
        '"""Return the row.\n\nRaises KeyError if it is missing."""\n',
        "# Is it stored? What then?\n",
        'PRAGMA = "journal_mode"\n',
    ],
)
def test_plain_python_is_not_reported(text: str) -> None:
    assert list(check_python(text)) == []


def test_code_in_markdown_is_not_checked() -> None:
    assert list(check_markdown("Text with `whoever`.\n\n```\nanew\n```\n")) == []


def test_a_class_name_that_is_used_twice_is_found(tmp_path: Path) -> None:
    (tmp_path / "engines").mkdir()
    for name in ("a.py", "b.py", "engines/c.py"):
        (tmp_path / name).write_text("class Job: ...\nclass _Job: ...\n")
    assert class_names(tmp_path) == {"Job": ["a.py", "b.py"]}
