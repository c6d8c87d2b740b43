"""A NaN is found when the value is read back as another one, or before, where the two are equal."""

import math
from typing import Any

import msgspec
import pytest

from keyhouse.errors import DocumentError
from keyhouse.schema import Record


class Named(msgspec.Struct):
    """Equal to others of its name, whatever its weight."""

    id: str
    weight: float | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.id == other.id


class Unequal(msgspec.Struct, eq=False):
    id: str
    weight: float | None = None


class Tree(msgspec.Struct):
    id: str
    weight: float | None = None
    branches: "list[Tree]" = []


class Outer(msgspec.Struct):
    id: str
    weights: list[float | None] = []
    parts: list[Named] = []
    by_name: dict[str, float | None] = {}


@pytest.mark.parametrize(
    "value",
    [
        Named("1", math.nan),
        Unequal("1", math.nan),
        Tree("1", math.nan),
        Tree("1", 1.0, [Tree("2", None, [Tree("3", -math.inf)])]),
        Outer("1", weights=[1.0, math.nan]),
        Outer("1", parts=[Named("2", math.nan)]),
        Outer("1", by_name={"a": math.inf}),
    ],
    ids=["own __eq__", "no eq", "tree", "deep in a tree", "list", "part of own __eq__", "dict"],
)
def test_nan_is_rejected_however_values_are_compared(value: Any) -> None:
    with pytest.raises(DocumentError):
        Record(type(value), "n:{id}").json.encode(value)


def test_values_without_a_nan_are_stored_however_they_are_compared() -> None:
    for value in (
        Named("1", 2.5),
        Unequal("1", 2.5),
        Tree("1", 2.5, [Tree("2", 2.5)]),
        Outer("1", [2.5, None], [Named("2", 2.5)], {"a": 2.5}),
    ):
        record: Record[Any] = Record(type(value), "n:{id}")
        read = record.json.decode(record.json.encode(value))
        assert msgspec.to_builtins(read) == msgspec.to_builtins(value)
