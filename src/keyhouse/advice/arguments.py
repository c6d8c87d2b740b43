"""Check arguments against their annotations, and name the one that does not match.

For declarations and for calls that are rare enough to pay for it. Functions called for every record
check their arguments themselves. Python's own TypeError covers missing, extra and unknown
arguments.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from itertools import chain, repeat
from typing import Any, Final, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from keyhouse.errors import KeyhouseError, UsageError

F = TypeVar("F", bound=Callable[..., Any])

_UNNAMED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY)

_MODULES = re.compile(r"\b(?:\w+\.)+")
"""The module in front of a type's name."""

EXAMPLES: Final = {
    "Clock": "ManualClock()",
    "Counter": 'Counter("views:{id}")',
    "Engine": 'await open_engine("sqlite:clips.db")',
    "Derived": 'Index("idx:clip:title:{title}:{id}")',
    "Escape": "NATS",
    "Expiry": "fixed(3600)",
    "IdSource": "UlidSource(SystemClock())",
    "Index": 'Index("idx:clip:title:{title}:{id}")',
    "KeyRing": 'KeyRing.load("keys.json")',
    "Log": 'Log(Play, "play:{clip}:{id:ulid}")',
    "Meta": "Meta()",
    "Migration": 'Migration(1, "why", CLIP, step)',
    "Operation": 'Operation(request_song, access="write")',
    "Owner": "Owner(CLIP)",
    "Record": 'Record(Clip, "clip:{id}")',
    "Reference": "Reference(CLIP)",
    "Schema": 'Schema("clips", CLIP, space=Space("a streamer"))',
    "Segment": "Ulid()",
    "Space": 'Space("a streamer")',
    "Store": 'Store(BOARD, engine, "ann")',
    "TimeFormat": "SECONDS",
    "timedelta": "timedelta(seconds=5)",
}
"""The text of an argument of each type: a number or a text in its place is a common mistake."""


def unnamed_fields(declared: object, positional: Sequence[object]) -> UsageError:
    """Return the error for key fields that were given without their names: `get(CLIP, "a")`."""
    template = getattr(declared, "template", None)
    names = getattr(template, "fields", None) or ("field",)
    return UsageError(
        f"Fields go by name: {', '.join(f'{name}=…' for name in names)}.", given=positional[0]
    )


def checked(error: type[KeyhouseError]) -> Callable[[F], F]:
    """Make a function raise this error for an argument that does not match its annotation. A list
    is taken where a tuple is needed."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            names, hints = _parameters(function)

            def accepted(name: str, value: object) -> object:
                hint = hints.get(name, hints["**"])
                if type(value) is list and not matches(value, hint):
                    value = tuple(value)
                if not matches(value, hint):
                    raise _mismatch(error, function, args, name, hint, value)
                return value

            positional = map(accepted, chain(names, repeat(names[-1])), args)
            return function(*positional, **{name: accepted(name, named[name]) for name in named})

        return cast(F, call)

    return decorate


@cache
def _parameters(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """Return the names of the positional parameters, and the annotation of every parameter.

    The last positional name also stands for any further ones (`*args`); `**` for further keywords.
    """
    hints = {"self": Any, "**": Any} | get_type_hints(function)
    positional: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            hints["**"] = hints.pop(name)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            positional.append(name)
    return positional or ["**"], hints


def matches(value: object, hint: Any) -> bool:
    """Return whether a value is what an annotation asks for."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar) or origin is type:
        return True
    if hint is None:
        return value is None
    if origin in (Union, types.UnionType):
        return any(matches(value, each) for each in inner)
    if origin is Callable or hint is Callable:
        return callable(value)
    if origin is tuple:
        return isinstance(value, tuple) and _matches_each(value, inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, origin) and all(
            matches(n, inner[0]) and matches(v, inner[1]) for n, v in value.items()
        )
    if hint in (int, float) and isinstance(value, bool):
        return False
    if hint is float:
        return isinstance(value, int | float)
    return not isinstance(value, type) and isinstance(value, origin or hint)


def _matches_each(value: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if hints[-1:] == (...,):
        return all(matches(each, hints[0]) for each in value)
    return len(value) == len(hints) and all(map(matches, value, hints))


def _mismatch(
    error: type[KeyhouseError],
    function: Callable[..., Any],
    args: tuple[Any, ...],
    name: str,
    hint: Any,
    value: object,
) -> KeyhouseError:
    of = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
    needed = _MODULES.sub("", hint.__name__ if isinstance(hint, type) else str(hint))
    fields = {"of": of, "argument": name, "needed": needed, "given": value}
    example = _example(hint) or plain_example(hint, value)
    if example is None:
        return error("An argument has the wrong type.", **fields)
    parameter = inspect.signature(function).parameters.get(name)  # None: one of its **options
    if parameter is None or parameter.kind not in _UNNAMED:
        example = f"{name}={example}"
    return error(
        "An argument has the wrong type: write it as in the example.", example=example, **fields
    )


def plain_example(hint: Any, value: object) -> str | None:
    """Return the text of an argument that holds plain values, this one if it fits; None for one
    that is a plain value itself."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return next(filter(None, (plain_example(each, value) for each in inner)), None)
    if origin is tuple and inner[1:] == (...,):
        if not matches((value,), hint):
            return '("title",)' if inner[0] is str else None
        return f"({value!r},)"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        item = '"tags"' if matches("tags", inner[1]) else plain_example(inner[1], value)
        return None if item is None else f'{{"tag": {item}}}'
    return "lambda clip: clip.title" if origin is Callable else None


def _example(hint: Any) -> str | None:
    """Return the text of an argument of this type; None if plain values have it."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is tuple:
        items = [item for each in inner if each is not ... and (item := _example(each))]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})" if items else None
    if origin in (Union, types.UnionType):
        return None if str in inner else next(filter(None, map(_example, inner)), None)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return None if (item := _example(inner[0])) is None else f"[{item}]"
    return EXAMPLES.get(getattr(origin or hint, "__name__", ""))
