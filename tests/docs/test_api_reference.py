"""The API reference: every public name is on it, with a text that says what it is."""

import inspect
import re
from typing import Any

import pytest

import keyhouse
from tests.docs.pages import DOCS
from tools.api_reference import GROUPS, METHODS, class_signature, methods, signature

VALUES: dict[str, Any] = {name: getattr(keyhouse, name) for name in keyhouse.__all__}
CLASSES = [name for name, value in VALUES.items() if isinstance(value, type)]
FUNCTIONS = [name for name, value in VALUES.items() if inspect.isfunction(value)]


@pytest.mark.parametrize("name", [*CLASSES, *FUNCTIONS])
def test_a_public_name_has_a_docstring_that_starts_with_what_it_is(name: str) -> None:
    text = VALUES[name].__dict__.get("__doc__") if name in CLASSES else VALUES[name].__doc__
    assert text and re.match(r"[A-Z]", text), f"{name}: {text!r}"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_documented_method_has_a_docstring(name: str) -> None:
    found = list(methods(VALUES[name], METHODS[name]))
    assert found and [each.__name__ for each in found if not each.__doc__] == []


def test_every_public_name_has_a_heading() -> None:
    headings = re.findall(r"^### (\w+)$", (DOCS / "api.md").read_text(), re.MULTILINE)
    assert sorted(headings) == sorted(keyhouse.__all__)


def test_no_group_lists_a_name_that_is_gone() -> None:
    assert {name for names in GROUPS.values() for name in names} <= set(keyhouse.__all__)


def test_a_signature_is_the_call_that_a_program_writes() -> None:
    assert (
        signature(keyhouse.Store.get, "Store.get")
        == "await Store.get(record: Record[T], /, **fields: Any) -> T | None"
    )
    assert signature(keyhouse.fixed, "fixed") == "fixed(seconds: int) -> Expiry"
    assert (
        class_signature(keyhouse.Span)
        == 'class Span:\n    start: str = ""\n    stop: str | None = None'
    )
    assert class_signature(keyhouse.KeyhouseError) is None
