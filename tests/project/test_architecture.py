"""ARCHITECTURE.md is true: every rule is tested, and everything it names exists."""

import re
from pathlib import Path

import pytest

from keyhouse import keys
from keyhouse.keys import Segment
from tests.project.code_rules import FILE_LINES_MAX
from tests.project.layer_tables import MAY_IMPORT
from tests.project.layers import RULES
from tests.project.package_source import sources

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


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/a-put-and-a-scan.md"])
def test_every_path_of_a_page_exists(page: str) -> None:
    for path in re.findall(r"`([\w./]+/|[\w./]*\w\.py)`", (ROOT / page).read_text()):
        places = (SOURCE / path, ROOT / path, ROOT / "src" / path)
        inside = any(any((ROOT / part).rglob(path)) for part in ("src", "systems", "tests"))
        assert inside or any(place.exists() for place in places), path


def test_every_layer_is_in_the_code_map() -> None:
    code_map = section("Code map")
    missing = [
        name
        for name in MAY_IMPORT
        if name and f"`{name}/`" not in code_map and f"`{name}.py`" not in code_map
    ]
    assert missing == []


def test_the_picture_of_the_layers_is_that_of_the_imports() -> None:
    """It showed `search/` below `http/`, which it imported."""
    picture = section("Layers").split("```")[1].strip().splitlines()
    levels = [re.findall(r"(\w+)(?:/|\.py| *\{)", line[:48]) for line in picture]
    level = {name: at for at, names in enumerate(levels) for name in names}
    assert {"cli", "serve", "sync", "remote_store", "engines", "requests", "keys"} <= set(level)
    upward = [
        (name, allowed)
        for name in level
        for allowed in MAY_IMPORT[name]
        if level.get(allowed.split(".")[0], len(levels)) < level[name]
    ]
    assert upward == []


def test_types_of_key_fields_are_asked_by_attribute() -> None:
    """Only their own modules name them: a new type works everywhere as those of the library do."""
    types = {name for name in dir(keys) if _is_segment_type(getattr(keys, name))}
    own = {"keyhouse.keys", "keyhouse.keys.segments"}
    named = [
        source.at(imported.line)
        for source in sources()
        if source.module.startswith("keyhouse.") and source.module not in own
        for imported in source.imports
        if imported.name in types and imported.module.startswith("keyhouse.keys")
    ]
    assert {"Day", "TextSegment"} <= types
    assert named == []


def _is_segment_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Segment) and value is not Segment


def test_the_size_limit_of_a_file_is_the_tested_one() -> None:
    assert f"at most {FILE_LINES_MAX} lines" in PAGE


def test_no_database_was_created_in_the_root() -> None:
    """SQLite's `:memory:` is not a file, but opening it by another library creates one."""
    assert [path.name for path in ROOT.iterdir() if ":" in path.name] == []
