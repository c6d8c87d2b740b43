"""ARCHITECTURE.md is true: every rule is tested, and everything it names exists."""

import re
from pathlib import Path

from tests.project.code_rules import FILE_LINES_MAX
from tests.project.layer_tables import MAY_IMPORT
from tests.project.layers import RULES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "keyhouse"
PAGE = (ROOT / "ARCHITECTURE.md").read_text()


def section(heading: str) -> str:
    return PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]


def test_every_layer_rule_is_on_the_page() -> None:
    assert [rule.__name__ for rule in RULES if f"`{rule.__name__}`" not in section("Rules")] == []


def test_every_rule_of_the_page_has_a_test() -> None:
    names = {rule.__name__ for rule in RULES}
    rules = re.split(r"^\d+\. ", section("Rules"), flags=re.MULTILINE)[1:]
    assert len(rules) == 16
    for rule in rules:
        tests = re.findall(r"`([\w./]+)`", rule.rpartition(": ")[2] or rule)
        known = [
            test
            for test in tests
            if test in names
            or (test.startswith("tests/") and (ROOT / test).exists())
            or test == "keyhouse.testing.conformance"
        ]
        assert known, rule


def test_every_path_of_the_page_exists() -> None:
    for path in re.findall(r"`([\w./]+/|[\w./]*\w\.py)`", PAGE):
        places = (SOURCE / path, ROOT / path, ROOT / "src" / path)
        known = any(place.exists() for place in places) or "/" not in path.rstrip("/")
        assert known or any(SOURCE.rglob(path)), path


def test_every_layer_is_in_the_code_map() -> None:
    code_map = section("Code map")
    missing = [
        name
        for name in MAY_IMPORT
        if name and f"`{name}/`" not in code_map and f"`{name}.py`" not in code_map
    ]
    assert missing == []


def test_the_size_limit_of_a_file_is_the_tested_one() -> None:
    assert f"at most {FILE_LINES_MAX} lines" in PAGE


def test_no_database_was_created_in_the_root() -> None:
    """SQLite's `:memory:` is not a file, but opening it by another library creates one."""
    assert [path.name for path in ROOT.iterdir() if ":" in path.name] == []
