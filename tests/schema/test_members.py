"""JSON members that are not attributes by name: unknown ones are stored, private ones hidden."""

import json
from typing import Any

import msgspec
import pytest

from keyhouse.errors import UnreadableError
from keyhouse.schema import Record


class Note(msgspec.Struct, kw_only=True, rename="camel"):
    id: str
    scale_x: int | float = 0
    secret_word: str = ""
    extra: dict[str, Any] = {}


NOTE = Record(Note, "n:{id}", unknown="extra", private=("secret_word",))


def test_an_unknown_member_named_like_the_attribute_for_unknown_members_is_stored() -> None:
    """`{"extra": 5}` was rejected and `{"extra": {…}}` lost: it was decoded into the attribute."""
    every: list[Any] = [5, {"a": 1}, None, {"extra": {}}]
    for extra in every:
        value = {
            "id": "1",
            "scaleX": 1.0,
            "secretWord": "x",
            "extra": extra,
            "deeper": {"list": [1, 2.0]},
        }
        read = NOTE.json.decode(json.dumps(value).encode())
        assert read.extra == {"extra": extra, "deeper": {"list": [1, 2.0]}}
        assert json.dumps(json.loads(NOTE.json.encode(read))) == json.dumps(value)


def test_a_known_member_wins_over_an_unknown_one_of_its_name() -> None:
    assert json.loads(NOTE.json.encode(Note(id="1", extra={"id": "2", "scaleX": 3})))["id"] == "1"


def test_a_private_attribute_is_hidden_under_the_name_it_has_in_the_json() -> None:
    """`shown` used the attribute's name, and showed a renamed private member."""
    assert NOTE.shown(Note(id="1", secret_word="x", extra={"a": 1})) == {
        "id": "1",
        "scaleX": 0,
        "a": 1,
    }


@pytest.mark.parametrize("row", [b"[]", b"5", b"null", b"{", b'{"id":5}', b'{"id":"\xff"}', b""])
def test_a_row_that_is_another_object_is_unreadable(row: bytes) -> None:
    with pytest.raises(UnreadableError):
        NOTE.json.decode(row, "n:1")
