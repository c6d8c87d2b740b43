"""Which route answers a path: a tree of segments, in which text goes before fields and longer text before shorter.

The tree is compiled to one regular expression when it is first asked: a path is then found in one step, however many routes
there are. A path is split before its escapes are undone, so `%2F` in a field is a character of the field and never a new
segment.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final, Generic, TypeVar
from urllib.parse import unquote_to_bytes

from keyhouse.errors import DeclarationError, UsageError

T = TypeVar("T")

Values = Callable[[re.Match[str]], Sequence[str]]

_SEGMENT = re.compile(r"([^{}]*)\{(\w+)\}([^{}]*)|[^{}]*")

_SLASH: Final = "\udc2f"
"""A slash inside a segment, while the path is matched. No UTF-8 spells it, so nobody can send it."""


class _Node(Generic[T]):
    __slots__ = ("by_method", "fields", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, _Node[T]] = {}
        self.fields: list[tuple[str, str, _Node[T]]] = []
        self.by_method: dict[str, T] = {}


class Router(Generic[T]):
    """What stands at each path, for each method."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._match = re.compile(r"(?!)").fullmatch
        self._ends: dict[int | None, tuple[dict[str, T], Values]] = {}
        self._is_compiled = True

    def add(self, method: str, path: str, entry: T) -> None:
        node = self._root
        for segment in path[1:].split("/"):
            node = self._below(node, segment, path)
        if method in node.by_method:
            raise DeclarationError(
                "Two routes have the same method and path.", method=method, path=path
            )
        node.by_method[method] = entry
        self._is_compiled = False

    def find(self, raw_path: bytes) -> tuple[dict[str, T], Sequence[str]] | None:
        """What there is by method, and the values of the path's fields; None when nothing is there."""
        if not self._is_compiled:
            self._compile()
        found = self._match(_text(raw_path))
        if found is None:
            return None
        by_method, values_of = self._ends[found.lastindex]
        values = values_of(found)
        return by_method, values if b"%" not in raw_path else [
            value.replace(_SLASH, "/") for value in values
        ]

    def _below(self, node: _Node[T], segment: str, path: str) -> _Node[T]:
        found = _SEGMENT.fullmatch(segment)
        if found is None:
            raise DeclarationError(
                "A segment of a path has one field at most, in braces.", path=path
            )
        if found[2] is None:
            return node.texts.setdefault(segment, _Node())
        before, after = found[1], found[3]
        for known_before, known_after, below in node.fields:
            if (known_before, known_after) == (before, after):
                return below
        below = _Node()
        node.fields.append((before, after, below))
        node.fields.sort(key=lambda each: -len(each[0] + each[1]))
        return below

    def _compile(self) -> None:
        self._ends = {}
        self._match = re.compile(self._pattern(self._root, ())).fullmatch
        self._is_compiled = True

    def _pattern(
        self, node: _Node[T], fields: tuple[int, ...], groups: list[int] | None = None
    ) -> str:
        """What may follow a node: first its texts, then its fields, then the end, which an empty group marks.

        `fields` are the groups of the fields before it; `groups` counts all, because the last one tells which end it was.
        """
        count = groups if groups is not None else [0]
        ways = [
            f"/{re.escape(text)}{self._pattern(below, fields, count)}"
            for text, below in node.texts.items()
        ]
        for before, after, below in node.fields:
            count[0] += 1
            own = f"([^/]{'+' if after else '++'})"
            rest = self._pattern(below, (*fields, count[0]), count)
            ways.append(f"/{re.escape(before)}{own}{re.escape(after)}{rest}")
        if node.by_method:
            count[0] += 1
            self._ends[count[0]] = (node.by_method, _values(fields))
            ways.append("()")
        return f"(?:{'|'.join(ways)})"


def _values(groups: tuple[int, ...]) -> Values:
    """What takes the values of these groups out of a match."""
    if len(groups) > 1:
        return itemgetter(*groups)
    return lambda match: tuple([match[group] for group in groups])


def path_fields(path: str) -> Iterator[str]:
    """The names of a path's fields, in its order."""
    for segment in path.split("/"):
        found = _SEGMENT.fullmatch(segment)
        if found is not None and found[2] is not None:
            yield found[2]


def _text(raw_path: bytes) -> str:
    """A path with the escapes of its segments undone; UsageError when one is not text."""
    try:
        if b"%" not in raw_path:
            return raw_path.decode()
        parts = [
            unquote_to_bytes(part).decode().replace("/", _SLASH) for part in raw_path.split(b"/")
        ]
        return "/".join(parts)
    except UnicodeDecodeError:
        raise UsageError("A path's escapes must spell UTF-8.") from None
