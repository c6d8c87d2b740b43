"""The page of findings names tests that exist, each in the file that has it."""

import ast
import re

import pytest

from tests.project.test_documentation import ROOT

PAGE = (ROOT / "docs/reports/2026-11-18-found-from-outside.md").read_text()
CLOSED = re.findall(r"`(test_\w+)`\s+\(`([\w/]+\.py)`\)", PAGE)


def test_every_test_that_the_page_names_has_its_file() -> None:
    assert {name for name, _ in CLOSED} == {*re.findall(r"`(test_\w+)`", PAGE)}


@pytest.mark.parametrize("file", sorted({file for _, file in CLOSED}))
def test_the_tests_of_the_page_exist(file: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    defined = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
    assert {name for name, at in CLOSED if at == file} <= defined
