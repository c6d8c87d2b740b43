"""The member that a type forbids is found at every level, with those that are known there."""

from typing import Any

import pytest
from msgspec import Struct

from keyhouse.advice.rejected_members import rejected_in, rejected_member


class Inner(Struct, forbid_unknown_fields=True):
    title: str = ""


class Open(Struct):
    inner: Inner | None = None


class Outer(Struct, forbid_unknown_fields=True, tag="outer"):
    items: list[Inner] = []
    named: dict[str, Inner] = {}
    open: Open | None = None


@pytest.mark.parametrize(
    ("plain", "member", "nearest"),
    [
        ({"item": []}, "item", "items"),
        ({"items": [{}, {"titel": 1}]}, "items[1].titel", "title"),
        ({"named": {"a": {"colour": 1}}}, "named.a.colour", None),
        ({"open": {"any": 1, "inner": {"titl": 1}}}, "open.inner.titl", "title"),
    ],
)
def test_the_first_forbidden_member_is_found(plain: Any, member: str, nearest: str | None) -> None:
    found = rejected_member(Outer, plain)
    assert found["member"] == member and found.get("nearest") == nearest and found["known"]


@pytest.mark.parametrize(
    "plain", [{}, None, [], 1, {"type": "outer"}, {"open": {"any": 1}}, {"items": {"x": 1}}]
)
def test_other_json_has_no_forbidden_member(plain: Any) -> None:
    assert rejected_member(Outer, plain) == {}


@pytest.mark.parametrize("text", [b'{"items": 1e400}', b"{", b'{"a": "\xff"}', b"[" * 5_000])
def test_text_that_no_value_can_hold_has_no_forbidden_member(text: bytes) -> None:
    """The error of `1e400` was replaced by one of the search for a forbidden member."""
    assert rejected_in(Outer, text) == {}
    assert rejected_in(Outer, b'{"item": 1}')["nearest"] == "items"
