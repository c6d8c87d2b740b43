"""Keys as generated code: the fastest way to build and split them.

Theory of operation. Keys are built several times for every write and split for every row of a scan,
and a loop over the fields of a template costs several times as much as one expression that is
written for it:

    l0 + (t0 if m0(t0 := v[0]) else f0(t0)) + l1 + f1(v[1])       the key of two fields
    (t[0], (s if (s := t[1]).isascii() … else p1(s)),)            the values of its texts

The source depends on the template alone and its names have the same meaning in every space, so the
code is compiled once and cached; what the names mean (literals, functions of the segments) is the
scope. A space that binds a template has another scope and the same code. Generated code raises a
bare ValueError or TypeError where a value is invalid; its caller then finds the field to name.

`schema/compiled_rows.py` compiles the derived rows of a record on the same two functions.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any

from keyhouse.keys.key import check_key
from keyhouse.keys.segment import Segment
from keyhouse.limits import KEY_BYTES_MAX


class KeyParts:
    """The fields of a template, their types, and the text around them: one literal more than
    fields."""

    __slots__ = ("fields", "literals", "segments")

    fields: tuple[str, ...]
    literals: tuple[str, ...]
    segments: tuple[Segment, ...]


def key_expression(
    parts: KeyParts, sources: Sequence[str], *, trusted: Sequence[str] = (), mark: str = ""
) -> tuple[str, dict[str, Any]]:
    """Return the Python expression that builds and checks a key, and the values of its names.

    `sources` is an expression for each field; fields in `trusted` are already formatted text. The
    names all begin with a letter and `mark`.
    """
    terms = [f"l{mark}0"]
    scope: dict[str, Any] = {f"l{mark}0": parts.literals[0], f"c{mark}": _checked}
    for at, (name, segment, tail) in enumerate(
        zip(parts.fields, parts.segments, parts.literals[1:], strict=True)
    ):
        scope |= {f"n{mark}{at}": name, f"f{mark}{at}": segment.format}
        if name in trusted:
            terms.append(sources[at])
        elif segment.matches is not None:  # most ids, without a further call
            scope[f"m{mark}{at}"], text = segment.matches, f"t{mark}{at}"
            terms.append(
                f"({text} if m{mark}{at}({text} := {sources[at]}) else f{mark}{at}({text}))"
            )
        else:
            terms.append(f"f{mark}{at}({sources[at]})")
        if tail:
            terms.append(f"l{mark}{at + 1}")
            scope[f"l{mark}{at + 1}"] = tail
    key, least = " + ".join(terms), "" if parts.literals[0] else "0 < "
    if _needs_no_check(parts):
        return key, scope
    return (
        f"k if (k := {key}).isascii() and {least}len(k) <= {KEY_BYTES_MAX} else c{mark}(k)",
        scope,
    )


def compile_key(parts: KeyParts, sources: Sequence[str]) -> Callable[[Any], str]:
    """Return a function of `v` that builds a key."""
    key, scope = key_expression(parts, sources)
    compiled: Callable[[Any], str] = evaluate(f"lambda v: {key}", scope)
    return compiled


def compile_address(
    parts: KeyParts, sources: Sequence[str], arguments: str, trusted: Sequence[str] = ()
) -> Callable[..., tuple[tuple[object, ...], str]]:
    """Return a function of `arguments` that returns the values of a key, and the key."""
    key, scope = key_expression(parts, sources, trusted=trusted)
    values = "".join(f"{source}, " for source in sources)
    compiled: Callable[..., tuple[tuple[object, ...], str]] = evaluate(
        f"lambda {arguments}: (({values}), {key})", scope
    )
    return compiled


def compile_pattern(parts: KeyParts) -> Callable[[str], re.Match[str] | None]:
    """Return a function that finds the texts of all fields in a key."""
    return re.compile(key_pattern(parts), re.DOTALL).fullmatch


def key_pattern(parts: KeyParts) -> str:
    """Return a regular expression that matches all keys, and possibly more."""
    fields = (
        f"({segment.key_pattern}){re.escape(tail)}"
        for segment, tail in zip(parts.segments, parts.literals[1:], strict=True)
    )
    return re.escape(parts.literals[0]) + "".join(fields)


def compile_parser(parts: KeyParts) -> Callable[[Any], tuple[object, ...]]:
    """Return a function that parses the texts of all fields. A verbatim field needs no parsing, and
    most text is not escaped."""
    if all(segment.is_verbatim for segment in parts.segments):
        return _unchanged
    values = []
    for at, segment in enumerate(parts.segments):
        test = segment.plain_test(f"(s := t[{at}])", "s")
        if segment.is_verbatim:
            values.append(f"t[{at}],")
        elif test is None:
            values.append(f"p{at}(t[{at}]),")
        else:
            values.append(f"(s if {test} else p{at}(s)),")
    scope = {f"p{at}": segment.parse for at, segment in enumerate(parts.segments)}
    compiled: Callable[[Any], tuple[object, ...]] = evaluate(
        f"lambda t: ({''.join(values)})", scope
    )
    return compiled


def evaluate(expression: str, scope: dict[str, Any]) -> Any:
    """Return the value of a generated expression."""
    return eval(_code(expression, "eval"), scope)


def define(source: str, name: str, scope: dict[str, Any]) -> Any:
    """Return the function `name` that generated statements define."""
    exec(_code(source, "exec"), scope)
    return scope[name]


@lru_cache(2_000)
def _code(source: str, mode: str) -> CodeType:
    return compile(source, "<generated by keyhouse.keys.compiler>", mode)


def _needs_no_check(parts: KeyParts) -> bool:
    """Return whether all keys are ASCII of a length that a key may have."""
    text = "".join(parts.literals)
    lengths = [segment.length for segment in parts.segments]
    return (
        bool(lengths)
        and text.isascii()
        and all(length is not None for length in lengths)
        and len(text) + sum(filter(None, lengths)) <= KEY_BYTES_MAX
    )


def _checked(key: str) -> str:
    """Check a key that is long, empty or not ASCII, and return it."""
    check_key(key)
    return key


def _unchanged(texts: tuple[object, ...]) -> tuple[object, ...]:
    return texts
