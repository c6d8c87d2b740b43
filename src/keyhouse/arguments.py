"""Arguments that are looked at before they are used: one that does not have its annotation is refused by its name.

For declarations, and for calls that are made seldom: their annotations are the one place that says what they take. What is
called for every record looks at its arguments itself. How many arguments there are, and what they are called, is left to
Python, which answers with its own TypeError.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping
from functools import cache, wraps
from itertools import chain, repeat
from typing import Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from keyhouse.errors import KeyhouseError

F = TypeVar("F", bound=Callable[..., Any])

_MODULES = re.compile(r"\b(?:\w+\.)+")
"""What stands in front of a type's own name."""


def checked(error: type[KeyhouseError]) -> Callable[[F], F]:
    """Makes a function refuse, with this error, an argument that does not have its annotation."""

    def around(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            places, hints = _taken(function)
            for name, value in (
                *zip(chain(places, repeat(places[-1])), args, strict=False),
                *named.items(),
            ):
                hint = hints.get(name, hints["**"])
                if not _fits(value, hint):
                    raise _refusal(error, function, args, name, hint, value)
            return function(*args, **named)

        return cast(F, call)

    return around


@cache
def _taken(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """The names of the arguments that are given by place, the last one for all further ones; and the annotations of all,
    `**` for further names."""
    hints = {"self": Any, "**": Any} | get_type_hints(function)
    places: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            hints["**"] = hints.pop(name)
        elif parameter.kind is not parameter.KEYWORD_ONLY:
            places.append(name)
    return places or ["**"], hints


def _fits(value: object, hint: Any) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or isinstance(hint, TypeVar) or origin is type:
        return True
    if hint is None:
        return value is None
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is Callable or hint is Callable:
        return callable(value)
    if origin is tuple:
        return isinstance(value, tuple) and _fits_each(value, inner)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, origin) and all(
            _fits(n, inner[0]) and _fits(v, inner[1]) for n, v in value.items()
        )
    if hint in (int, float) and isinstance(value, bool):
        return False
    return not isinstance(value, type) and isinstance(value, origin or hint)


def _fits_each(value: tuple[object, ...], hints: tuple[Any, ...]) -> bool:
    if hints[-1:] == (...,):
        return all(_fits(each, hints[0]) for each in value)
    return len(value) == len(hints) and all(map(_fits, value, hints))


def _refusal(
    error: type[KeyhouseError],
    function: Callable[..., Any],
    args: tuple[Any, ...],
    name: str,
    hint: Any,
    value: object,
) -> KeyhouseError:
    of = type(args[0]).__name__ if function.__name__ == "__init__" else function.__name__
    needed = _MODULES.sub("", hint.__name__ if isinstance(hint, type) else str(hint))
    return error(
        "An argument is not what it must be.", of=of, argument=name, needed=needed, given=value
    )
