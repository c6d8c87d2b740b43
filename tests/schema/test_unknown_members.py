"""The tree of a type's known members: what is unknown is found, and kept where it was."""

from typing import Annotated, Any

import msgspec
import pytest
from msgspec import inspect

from keyhouse.schema.unknown_members import KnownMembers, known_members


class Cat(msgspec.Struct, tag="cat"):
    name: str
    kittens: "list[Cat]" = []


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Home(msgspec.Struct, rename="camel"):
    id: str
    first_pet: Cat | Dog | None = None
    pets: Annotated[list[Cat | Dog], msgspec.Meta(max_length=9)] = []
    rooms: dict[str, list[Dog]] = {}
    mixed: Dog | list[Dog] | None = None
    anything: Any = None


def known() -> KnownMembers:
    found = known_members(inspect.type_info(Home))
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("plain", "path"),
    [
        ({"id": "a", "firstPet": {"type": "cat", "name": "x"}, "anything": {"a": 1}}, None),
        ({"first_pet": None}, "first_pet"),
        ({"firstPet": {"type": "dog", "kittens": []}}, "firstPet.kittens"),
        ({"firstPet": {"type": "bird", "wings": 2}}, None),
        ({"firstPet": {"type": [], "wings": 2}}, None),
        ({"pets": [{"type": "cat", "kittens": [{"age": 1}]}]}, "pets[0].kittens[0].age"),
        ({"rooms": {"hall": [{"name": "x"}, {"age": 1}]}}, "rooms.hall[1].age"),
        ({"mixed": {"type": "dog", "age": 1}}, "mixed.age"),
        ({"mixed": [{"type": "dog", "age": 1}]}, "mixed[0].age"),
        ({"mixed": 3, "pets": 3, "rooms": 3}, None),
        ([], None),
    ],
)
def test_the_path_of_an_unknown_member_is_found(plain: Any, path: str | None) -> None:
    assert known().first_unknown(plain) == path


def test_unknown_members_are_kept_where_they_were() -> None:
    stored = {
        "id": "a",
        "new": 1,
        "firstPet": {"type": "cat", "name": "x", "age": 1},
        "pets": [{"type": "dog", "name": "a", "age": 1}, {"type": "dog", "name": "b", "age": 2}],
        "rooms": {"hall": [{"type": "dog", "name": "a", "age": 1}], "gone": []},
    }
    written: dict[str, Any] = {
        "id": "a",
        "firstPet": {"type": "dog", "name": "x"},
        "pets": [{"type": "dog", "name": "b"}, {"type": "dog", "name": "a"}],
        "rooms": {"hall": [{"type": "dog", "name": "a"}]},
    }
    known().keep(stored, written)
    assert written == {
        "id": "a",
        "new": 1,
        "firstPet": {"type": "dog", "name": "x"},
        "pets": stored["pets"][::-1],  # type: ignore[index]  # a list
        "rooms": {"hall": [{"type": "dog", "name": "a", "age": 1}]},
    }


def test_an_item_is_found_although_it_leaves_out_a_default() -> None:
    stored = {"pets": [{"type": "cat", "name": "a", "age": 1}]}
    written: dict[str, Any] = {"pets": [{"type": "cat", "name": "a", "kittens": []}]}
    known().keep(stored, written)
    assert written["pets"] == [{"type": "cat", "name": "a", "kittens": [], "age": 1}]
    changed: dict[str, Any] = {"pets": [{"type": "cat", "name": "b", "kittens": []}]}
    known().keep(stored, changed)
    assert changed == {"pets": [{"type": "cat", "name": "b", "kittens": []}]}
