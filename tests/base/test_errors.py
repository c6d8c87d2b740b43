"""Errors have a fixed sentence and fields, a status and a code; the documented tree is the real
one.
"""

import ast
import importlib
import json
import pkgutil
import re
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

import keyhouse
from keyhouse import Record, errors
from keyhouse.errors import KeyhouseError, LimitError
from keyhouse.http.errors import PROBLEM
from keyhouse.nats.endpoint import PROBLEM_HEADER, error_headers
from keyhouse.remote_store.problems import error_of


def tree() -> dict[str, type[KeyhouseError]]:
    found: dict[str, type[KeyhouseError]] = {}
    queue = [KeyhouseError]
    while queue:
        kind = queue.pop()
        found[kind.__name__] = kind
        queue += [each for each in kind.__subclasses__() if each.__module__ == errors.__name__]
    return found


def all_errors() -> list[type[KeyhouseError]]:
    """Return the classes of every module of the package that declares errors."""
    for module in pkgutil.walk_packages(keyhouse.__path__, "keyhouse."):
        if module.name.endswith(".errors"):
            importlib.import_module(module.name)
    found: list[type[KeyhouseError]] = []
    queue = [KeyhouseError]
    while queue:
        kind = queue.pop()
        if kind.__module__.startswith("keyhouse."):
            found.append(kind)
            queue += kind.__subclasses__()
    return sorted(found, key=lambda kind: kind.__name__)


def drawn() -> dict[str, str]:
    """Return each error of the module's docstring, with its parent."""
    picture = ast.get_docstring(ast.parse(Path(errors.__file__).read_text())) or ""
    parents: dict[str, str] = {}
    stack: list[str] = []
    for line in picture.splitlines():
        if match := re.match(r"([│├└─ ]*)([A-Z]\w*Error)\b", line):
            depth = len(match[1]) // 4
            stack[depth:] = [match[2]]
            parents[match[2]] = stack[depth - 1] if depth else ""
    return parents


def test_the_documented_error_tree_is_the_real_one() -> None:
    actual = {
        name: kind.__bases__[0].__name__ if kind is not KeyhouseError else ""
        for name, kind in tree().items()
    }
    assert drawn() == actual


@pytest.mark.parametrize("kind", tree().values(), ids=lambda kind: kind.__name__)
def test_every_error_has_a_status_and_a_code(kind: type[KeyhouseError]) -> None:
    assert 400 <= kind.status < 600 and kind.code == kind.code.upper()


EVERY = all_errors()


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_an_error_has_the_same_type_in_python_over_http_over_nats_and_from_a_remote_store(
    kind: type[KeyhouseError],
) -> None:
    """A cooldown, a missing song, a taken title and a lost race were all `CONFLICT`."""
    error = kind("A sentence.")
    problem = msgspec.json.decode(PROBLEM.response(error, "1").body)
    header = json.loads(error_headers(error, problem=True)[PROBLEM_HEADER])
    assert problem["type"] == header["type"] == f"urn:keyhouse:error:{error.type}"
    for received in (error_of(error.status, problem), error_of(header["status"], header)):
        assert received.type == received.copy().type == error.public().type == error.type
        if kind.__module__ == errors.__name__:
            assert type(received) is kind


def test_no_two_errors_have_one_type() -> None:
    types = Counter(kind.type for kind in EVERY)
    assert [name for name, count in types.items() if count > 1] == []


@pytest.mark.parametrize("text", [None, 3, "", "about:blank", "urn:keyhouse:error:a\nb", "x" * 999])
def test_a_type_that_is_not_ours_is_that_of_the_status(text: object) -> None:
    assert error_of(412, {"type": text}).type == "revision"


def test_an_error_is_a_sentence_and_its_fields() -> None:
    error = LimitError("Too many rows.", rows=5, key="x")
    assert str(error) == "Too many rows. (rows=5, key='x')"
    assert error.sentence == "Too many rows." and error.fields == {"rows": 5, "key": "x"}
    assert str(LimitError("Too many rows.")) == "Too many rows."


def test_a_long_field_is_abbreviated() -> None:
    shown = str(LimitError("Too long.", value="x" * 10_000 + "end"))
    assert len(shown) < 250 and "…" in shown and shown.endswith("end')")


def test_an_error_can_always_be_printed() -> None:
    """Python does not print an integer of 5,000 digits, so its error could not be printed."""
    assert "too long to show" in str(LimitError("Too large.", value=10**5_000))


class Part(msgspec.Struct):
    title: str
    day: date


class Opaque:
    pass


FIELDS: dict[str, tuple[Any, Any]] = {
    "dict": ({"title": "what a goal!"}, {"title": "what a goal!"}),
    "keys": ({1: {2: "x"}}, {"1": {"2": "x"}}),
    "list": (["a", {"b": None}], ["a", {"b": None}]),
    "tuple": (("a", 1.5), ["a", 1.5]),
    "set": ({"a"}, ["a"]),
    "struct": (Part("t", date(2026, 1, 2)), {"title": "t", "day": "2026-01-02"}),
    "structs": ([Part("t", date(2026, 1, 2))], [{"title": "t", "day": "2026-01-02"}]),
    "day": (date(2026, 1, 2), "2026-01-02"),
    "time": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z"),
    "decimal": (Decimal("1.5"), "1.5"),
    "bytes": (b"abc", "YWJj"),
    "nan": (float("nan"), "nan"),
    "large": (2**60, "a number too long to show"),
    "class": (Part, "Part"),
    "object": (Opaque(), "Opaque"),
    "record": (Record(Part, "part:{title}"), "Record"),
    "surrogate": ("\ud800", "\\ud800"),
    "none": (None, None),
    "true": (True, True),
}
"""Values of fields, and how a response has them."""


@pytest.mark.parametrize("kind", tree().values(), ids=lambda kind: kind.__name__)
def test_the_fields_of_every_error_are_json_without_python_reprs(
    kind: type[KeyhouseError],
) -> None:
    """A unique conflict over HTTP had `"value": "{'title': 'what a goal!'}"`."""
    error = kind("A sentence.", **{name: value for name, (value, _) in FIELDS.items()})
    sent = json.loads(msgspec.json.encode(error.json_fields()))
    assert sent == {name: shown for name, (_, shown) in FIELDS.items()}


def test_a_field_that_the_caller_sent_does_not_make_a_large_response() -> None:
    nested: Any = "x" * 1_000
    for _ in range(8):
        nested = [nested] * 50
    shared = {f"k{at}": {"y" * 1_000: nested} for at in range(50)}
    fields = LimitError("Too large.", value=shared, other=nested).json_fields()
    assert len(json.dumps(fields)) < 50_000
