"""Arguments are checked against each kind of annotation, and errors name the needed type."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pytest

from keyhouse.arguments import checked
from keyhouse.errors import DeclarationError, UsageError
from keyhouse.keys import Segment, TextSegment, Ulid

T = TypeVar("T")


@checked(UsageError)
def called(
    text: str = "",
    *many: int,
    either: str | None = None,
    pair: tuple[str, int] = ("", 0),
    texts: tuple[str, ...] = (),
    named: Mapping[str, str | int] | None = None,
    make: Callable[[Any], object] = str,
    a: type[T] | None = None,
    segment: Segment = TextSegment(),  # noqa: B008  # it is never changed
    anything: Any = None,
    **more: bytes,
) -> str:
    return text


@checked(UsageError)
def returned(*many: tuple[int, ...], texts: tuple[str, ...] = ()) -> object:
    return many, texts


class Kept:
    @checked(DeclarationError)
    def __init__(self, size: int) -> None:
        self.size = size


@pytest.mark.parametrize(
    ("args", "named"),
    [
        (("x",), {}),
        (("x", 1, 2), {}),
        ((), {"pair": ["a", 1], "texts": ["a", "b"]}),  # lists, where tuples are asked for
        ((), {"either": None, "pair": ("a", 1), "texts": ("a", "b"), "named": {"a": 1, "b": "c"}}),
        ((), {"make": len, "a": int, "segment": Ulid(), "anything": object(), "further": b"x"}),
    ],
)
def test_an_argument_that_matches_its_annotation_is_accepted(
    args: tuple[Any, ...], named: dict[str, Any]
) -> None:
    assert called(*args, **named) == (args[0] if args else "")


@pytest.mark.parametrize(
    ("args", "named", "argument"),
    [
        ((1,), {}, "text"),
        ((None,), {}, "text"),
        (("x", 1, "2"), {}, "many"),
        (("x", True), {}, "many"),
        ((), {"either": 1}, "either"),
        ((), {"pair": ("a",)}, "pair"),
        ((), {"pair": ["a", "1"]}, "pair"),
        ((), {"texts": ["a", 1]}, "texts"),
        ((), {"either": []}, "either"),
        ((), {"texts": "ab"}, "texts"),
        ((), {"texts": ("a", 1)}, "texts"),
        ((), {"named": {"a": None}}, "named"),
        ((), {"named": {1: "a"}}, "named"),
        ((), {"named": [("a", 1)]}, "named"),
        ((), {"make": "len"}, "make"),
        ((), {"segment": Ulid}, "segment"),
        ((), {"segment": "ulid"}, "segment"),
        ((), {"further": "x"}, "further"),
    ],
)
def test_an_argument_that_does_not_match_is_rejected_by_name(
    args: tuple[Any, ...], named: dict[str, Any], argument: str
) -> None:
    with pytest.raises(UsageError, match=r"An argument has the wrong type\.") as refused:
        called(*args, **named)
    assert refused.value.fields["of"] == "called" and refused.value.fields["argument"] == argument


def test_a_list_is_taken_as_a_tuple_where_one_is_needed() -> None:
    assert returned([1, 2], (3,), texts=["a"]) == (((1, 2), (3,)), ("a",))  # type: ignore[arg-type]


def test_the_error_names_the_needed_type_without_its_module() -> None:
    with pytest.raises(UsageError) as refused:
        called(named=1)  # type: ignore[arg-type]
    assert refused.value.fields["needed"] == "Mapping[str, str | int] | None"
    with pytest.raises(DeclarationError) as refused_too:
        Kept("1")  # type: ignore[arg-type]
    assert str(refused_too.value) == (
        "An argument has the wrong type. (of='Kept', argument='size', needed='int', given='1')"
    )


def test_python_checks_the_number_and_names_of_arguments() -> None:
    with pytest.raises(TypeError, match="takes 2 positional arguments"):
        Kept(1, 2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        Kept(size=1, colour=2)  # type: ignore[call-arg]
