"""Paths: derived from an entry's extended attributes, and written into keys.

A path consists of whole parts. An entry is found at every whole prefix of its path, so one lookup
serves any depth, and `/1446` never covers `/14460`. An absent or empty attribute ends the path.
"""

from collections.abc import Mapping
from typing import Any

from keyhouse.keys import Escape, Segment, TextSegment

__all__ = [
    "PARTS",
    "Parts",
    "Path",
    "hierarchy",
    "sport",
    "teams",
    "whole_prefixes",
]

PARTS = Escape("%", r"[/|]", alphabet=r"^/|\x00")
"""Escapes `/` and `|` in values, so that those in a key are its delimiters."""

Parts = tuple[str, ...]


class Path(Segment):
    """The type of a path in a key: `("1446", "1450")` is `/1446/1450`."""

    pattern = r"(?:/[^/|\x00]+)+"
    description = "a path such as /1446/1450"

    def __init__(self) -> None:
        self._part = TextSegment().followed_by("", PARTS)

    def format(self, value: object) -> str:
        if not isinstance(value, tuple) or not value:
            raise ValueError("must be the parts of a path, at least one")
        return "".join("/" + self._part.format(part) for part in value)

    def parse(self, text: str) -> Parts:
        return tuple(self._part.parse(part) for part in text[1:].split("/"))


def whole_prefixes(path: Parts) -> list[Parts]:
    """Return `/a`, `/a/b`, …: the paths at which an entry is found."""
    return [path[: length + 1] for length in range(len(path))]


def hierarchy(ext: Mapping[str, Any]) -> Parts:
    """`/{show}/{season}`"""
    return _path(ext, "showCategoryId", "seasonCategoryId")


def sport(ext: Mapping[str, Any]) -> Parts:
    """`/{sport}/{series}`"""
    return _path(ext, "sport", "series-id")


def teams(ext: Mapping[str, Any]) -> list[str]:
    """Return the comma list `team-ids`: split, trimmed, without duplicates, in its order."""
    listed = ext.get("team-ids")
    if not listed:
        return []
    return list(dict.fromkeys(team for each in listed.split(",") if (team := each.strip())))


def _path(ext: Mapping[str, Any], *names: str) -> Parts:
    parts: list[str] = []
    for name in names:
        if not (part := ext.get(name)):
            break
        parts.append(part)
    return tuple(parts)
