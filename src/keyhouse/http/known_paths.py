"""The paths of an app, for the error of a path that no route has: where it leaves the known ones.

It is asked for such paths alone, walks as many segments as the path has, and names no more than a
few known ones.
"""

from collections.abc import Iterable
from typing import Final

from keyhouse.schema.nearest import nearest

__all__ = ["KnownPaths"]

_KNOWN_MAX: Final = 20
_PATHS_MAX: Final = 3
_SEGMENT_CHARS_MAX: Final = 64
_FIELD: Final = "{}"


class _Place:
    """A segment of known paths: the texts that may follow, or a field, and paths through it."""

    __slots__ = ("next", "paths")

    def __init__(self) -> None:
        self.next: dict[str, _Place] = {}
        self.paths: list[str] = []


class KnownPaths:
    """A tree of the paths that clients may know."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._root = _Place()
        for path in paths:
            place = self._root
            for segment in path[1:].split("/"):
                place = place.next.setdefault(_FIELD if "{" in segment else segment, _Place())
                if path not in place.paths and len(place.paths) < _PATHS_MAX:
                    place.paths.append(path)

    def describe(self, raw_path: bytes) -> dict[str, object]:
        """Return fields for the error of a path: its first unknown segment with the known ones, or
        the paths that begin as it does."""
        place = self._root
        for segment in raw_path.decode(errors="replace")[1:].split("/"):
            following = place.next.get(segment) or place.next.get(_FIELD)
            if following is None:
                return self._unknown(place, segment)
            place = following
        return {"paths": place.paths}

    def _unknown(self, place: _Place, segment: str) -> dict[str, object]:
        known = [*place.next][:_KNOWN_MAX]
        if not known:
            return {"paths": place.paths}
        segment = segment[:_SEGMENT_CHARS_MAX]
        return {"segment": segment, "known": known, **nearest(segment, known)}
