"""Arguments are checked against each kind of annotation, and errors name the needed type."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any, TypeVar, get_args, get_origin

import pytest
from msgspec import Struct

import keyhouse
from keyhouse.advice.arguments import EXAMPLES, checked, matches, plain_example
from keyhouse.advice.http_arguments import authorization
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
    with pytest.raises(UsageError, match="An argument has the wrong type") as refused:
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


class Clip(Struct):
    id: str
    title: str


async def step(tx: Any, entry: Any) -> None: ...


async def request_song(store: keyhouse.Store) -> None: ...


CHECKED = called.__code__  # of the wrapper, which is the same for all
NAMES = {
    **vars(keyhouse),
    "Clip": Clip,
    "Play": Clip,
    "CLIP": keyhouse.Record(Clip, "clip:{id}"),
    "step": step,
    "request_song": request_song,
}
"""The names in the examples."""
OPENED = {"Engine", "KeyRing", "Store"}
"""Types whose example opens a file or an engine."""


def checked_functions() -> Iterator[Callable[..., Any]]:
    """Yield every function whose arguments are checked, of the packages of the library."""
    for package in ("keys", "schema", "store", "remote_store"):
        root = import_module(f"keyhouse.{package}")
        for found in pkgutil.walk_packages(root.__path__, f"{root.__name__}."):
            module = import_module(found.name)
            owners = [each for each in vars(module).values() if inspect.isclass(each)]
            for owner in (module, *owners):
                for each in vars(owner).values():
                    if inspect.isfunction(each) and each.__code__ is CHECKED:
                        yield inspect.unwrap(each)


def declared_types(hint: Any) -> Iterator[type]:
    """Yield the types of this library that a value of a hint is or has."""
    if get_origin(hint) in (type, Callable):
        return
    for each in get_args(hint):
        yield from declared_types(each)
    own = get_origin(hint) or hint
    if inspect.isclass(own) and own.__module__.startswith("keyhouse."):
        yield own


def test_every_type_of_a_declaration_has_an_example_that_makes_one() -> None:
    """The error of `expiry=30` had the type Expiry, and not how to write one."""
    needed = {
        kind
        for function in checked_functions()
        for name, hint in inspect.get_annotations(function, eval_str=True).items()
        if name != "return"
        for kind in declared_types(hint)
    }
    without = {kind.__name__ for kind in needed} - EXAMPLES.keys()
    assert without == {"Template"}, "a template is written as text"
    for kind in needed:
        if kind.__name__ not in OPENED | {"Template"}:
            assert isinstance(eval(EXAMPLES[kind.__name__], dict(NAMES)), kind)


@pytest.mark.parametrize(
    ("declare", "example"),
    [
        (lambda plain: keyhouse.Record(Clip, "c:{id}", expiry=plain), "expiry=fixed(3600)"),
        (lambda plain: keyhouse.Counter("n:{id}", expiry=plain), "expiry=fixed(3600)"),
        (lambda plain: keyhouse.Counter("n:{id}", belongs_to=plain), "belongs_to=Owner(CLIP)"),
        (
            lambda plain: keyhouse.Record(Clip, "c:{id}", plain),
            'Index("idx:clip:title:{title}:{id}")',
        ),
        (lambda plain: keyhouse.Record(Clip, "c:{id}", times=plain), "times=SECONDS"),
        (lambda plain: keyhouse.Schema("a", space=plain), 'space=Space("a streamer")'),
        (
            lambda plain: keyhouse.Schema("a", space=keyhouse.Space("x"), migrations=plain),
            'migrations=(Migration(1, "why", CLIP, step),)',
        ),
        (
            lambda plain: keyhouse.Schema("a", plain, space=keyhouse.Space("x")),
            'Record(Clip, "clip:{id}")',
        ),
    ],
)
@pytest.mark.parametrize("plain", [30, "30", ["x"], {"seconds": 30}])
def test_the_error_of_a_plain_value_in_the_place_of_a_declaration_has_an_example(
    declare: Callable[[object], object], example: str, plain: object
) -> None:
    with pytest.raises(DeclarationError, match="write it as in the example") as refused:
        declare(plain)
    assert refused.value.fields["example"] == example


PLAIN: dict[str, tuple[Callable[[], object], str]] = {
    "tuple": (lambda: keyhouse.Record(Clip, "c:{id}", private="title"), 'private=("title",)'),  # type: ignore[arg-type]
    "mapping": (lambda: keyhouse.Index("t:{tag}:{id}", each="tags"), 'each={"tag": "tags"}'),  # type: ignore[arg-type]
    "function": (lambda: keyhouse.Index("t:{id}", when=True), "when=lambda clip: clip.title"),  # type: ignore[arg-type]
    "positional": (lambda: keyhouse.ManualClock().advance(5), "timedelta(seconds=5)"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", PLAIN)
def test_the_error_of_a_lone_value_shows_how_several_are_written(kind: str) -> None:
    """`private="pin"` and `each="tags"` had the needed type, `tuple[str, ...]`, and no example."""
    declare, example = PLAIN[kind]
    with pytest.raises((DeclarationError, UsageError), match="as in the example") as refused:
        declare()
    fields = refused.value.fields
    assert str(fields["example"]).replace("'", '"') == example


def test_every_example_of_plain_values_is_accepted_by_its_parameter() -> None:
    """Over every checked parameter of the library that holds several values or a function."""
    seen = 0
    for function in checked_functions():
        for name, hint in inspect.get_annotations(function, eval_str=True).items():
            text = plain_example(hint, object()) if name != "return" else None
            if text is not None:
                seen += 1
                assert matches(eval(text), hint), (function, name, text)
    assert seen > 20


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("", "empty"),
        (" \n", "empty"),
        ("a.b.c\n", "line break"),
        ("a.b\r\n.c", "line break"),
        ("a.b c", "characters"),
        ("é", "characters"),
    ],
)
def test_a_token_that_no_header_can_carry_is_rejected_with_the_reason(
    token: str, reason: str
) -> None:
    """A token read from a file ends with a line break: the service seemed not to answer."""
    with pytest.raises(UsageError) as refused:
        authorization(token)
    assert reason in str(refused.value.fields["reason"])
    assert token.strip() not in str(refused.value) or not token.strip()
    assert authorization("a.b.c") == "Bearer a.b.c"
