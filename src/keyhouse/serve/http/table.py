"""Which route answers a path: a tree of segments, in which text goes before fields and longer text before shorter.

A path is split before its escapes are undone, so `%2F` in a field is a character of the field and never a new segment.
"""

import re
from collections.abc import Iterator
from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

from keyhouse.errors import DeclarationError, UsageError

T = TypeVar("T")

_SEGMENT = re.compile(r"([^{}]*)\{(\w+)\}([^{}]*)|[^{}]*")


class _Node(Generic[T]):
    __slots__ = ("by_method", "fields", "texts")

    def __init__(self) -> None:
        self.texts: dict[str, _Node[T]] = {}
        self.fields: list[tuple[str, str, _Node[T]]] = []
        self.by_method: dict[str, T] = {}


class Table(Generic[T]):
    """What stands at each path, for each method."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()

    def add(self, method: str, path: str, entry: T) -> None:
        node = self._root
        for segment in path[1:].split("/"):
            node = self._below(node, segment, path)
        if method in node.by_method:
            raise DeclarationError("Two routes have the same method and path.", method=method, path=path)
        node.by_method[method] = entry

    def find(self, raw_path: bytes) -> tuple[dict[str, T], list[str]] | None:
        """What there is by method, and the values of the path's fields; None when nothing is there."""
        parts = segments(raw_path)
        values: list[str] = []
        node = self._root
        for at, part in enumerate(parts):
            if node.fields:  # more than one way may lead on from here
                found = self._walk(node, parts, at, values)
                return None if found is None else (found.by_method, values)
            below = node.texts.get(part)
            if below is None:
                return None
            node = below
        return (node.by_method, values) if node.by_method else None

    def _below(self, node: _Node[T], segment: str, path: str) -> _Node[T]:
        found = _SEGMENT.fullmatch(segment)
        if found is None:
            raise DeclarationError("A segment of a path has one field at most, in braces.", path=path)
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

    def _walk(self, node: _Node[T], parts: list[str], at: int, values: list[str]) -> _Node[T] | None:
        if at == len(parts):
            return node if node.by_method else None
        part = parts[at]
        below = node.texts.get(part)
        if below is not None and (found := self._walk(below, parts, at + 1, values)) is not None:
            return found
        for before, after, below in node.fields:
            if len(part) > len(before) + len(after) and part.startswith(before) and part.endswith(after):
                values.append(part[len(before) : len(part) - len(after)])
                if (found := self._walk(below, parts, at + 1, values)) is not None:
                    return found
                values.pop()
        return None


def path_fields(path: str) -> Iterator[str]:
    """The names of a path's fields, in its order."""
    for segment in path.split("/"):
        found = _SEGMENT.fullmatch(segment)
        if found is not None and found[2] is not None:
            yield found[2]


def segments(raw_path: bytes) -> list[str]:
    """A path's segments with their escapes undone; UsageError when one is not text."""
    try:
        if b"%" not in raw_path:
            return raw_path[1:].decode().split("/")
        return [unquote_to_bytes(part).decode() for part in raw_path[1:].split(b"/")]
    except UnicodeDecodeError:
        raise UsageError("A path's escapes must spell UTF-8.") from None
