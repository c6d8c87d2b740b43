"""Marathons: the items of several playlists in one order. Pure.

    concatenate   one source after the other
    shuffle       all items in an order that the seed determines
    interleave    by a pattern: `A2 B` takes two of A, one of B, and so on until all are used

Every item of every source is in the result exactly once. A shuffle with `preserve_episode_order`
moves episodes (S01E04, s01.e04, 1x04) among their own places only: the episodes of a source stay in
the order of the source.
"""

import random
import re
from collections.abc import Sequence
from itertools import chain
from string import ascii_uppercase
from typing import Final, Generic, Protocol, TypeVar

import msgspec

from keyhouse_playlist.errors import PatternError
from keyhouse_playlist.limits import MARATHON_SOURCES_MAX, PATTERN_CHARS_MAX, PATTERN_COUNT_MAX
from keyhouse_playlist.schema import Method

__all__ = ["Marathon", "Method", "Source", "build_marathon", "is_episode", "parse_pattern"]

_EPISODE: Final = re.compile(
    r"(?<![^\W_])(?:s\d{1,4}[ ._-]{0,3}e\d{1,4}|\d{1,3}x\d{1,4})(?![^\W_])", re.IGNORECASE
)
_SEPARATORS: Final = " ,-|"
_TOKEN: Final = re.compile(r"([A-Za-z])([0-9]*)")


class Titled(Protocol):
    """An item of a playlist, as far as a marathon looks at it."""

    @property
    def title(self) -> object: ...


T = TypeVar("T", bound=Titled)


class Source(msgspec.Struct, Generic[T], frozen=True):
    """The items of one playlist. Without a label it has the letter of its place."""

    items: Sequence[T]
    label: str | None = None


class Marathon(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]
    warnings: list[str] = []


def build_marathon(
    sources: Sequence[Source[T]],
    method: Method,
    *,
    seed: str = "",
    pattern: str | None = None,
    preserve_episode_order: bool = True,
) -> Marathon[T]:
    """Return the items in order. Raises PatternError if the sources or the pattern are invalid."""
    labels = _labels(sources)
    warnings = [
        f"Source {label} has no items."
        for label, source in zip(labels, sources, strict=True)
        if not source.items
    ]
    items = list(chain.from_iterable(source.items for source in sources))
    if method == "shuffle":
        items = _shuffled(sources, seed, preserve_episode_order)
    elif method == "interleave":
        tokens = [(label, 1) for label in labels] if pattern is None else parse_pattern(pattern)
        items, left = _interleaved(dict(zip(labels, sources, strict=True)), tokens)
        warnings += left
    return Marathon(items, warnings)


def is_episode(title: object) -> bool:
    """Return whether a title has the number of an episode."""
    return isinstance(title, str) and _EPISODE.search(title) is not None


def parse_pattern(text: str) -> list[tuple[str, int]]:
    """Return the labels of a pattern with their counts. Raises PatternError if it is invalid."""
    if len(text) > PATTERN_CHARS_MAX:
        raise PatternError("The pattern is too long.", limit=PATTERN_CHARS_MAX)
    tokens: list[tuple[str, int]] = []
    at = 0
    while at < len(text):
        if text[at] in _SEPARATORS:
            at += 1
            continue
        match = _TOKEN.match(text, at)
        if match is None:
            raise PatternError(
                "A pattern has labels with optional counts, such as A2 B.", at=at, found=text[at]
            )
        count = int(match[2] or 1)
        if not 1 <= count <= PATTERN_COUNT_MAX:
            raise PatternError(
                "The count of a label is out of range.", token=match[0], limit=PATTERN_COUNT_MAX
            )
        tokens.append((match[1].upper(), count))
        at = match.end()
    if not tokens:
        raise PatternError("The pattern is empty: it has labels, such as A2 B.")
    return tokens


def _labels(sources: Sequence[Source[T]]) -> list[str]:
    if not 1 <= len(sources) <= MARATHON_SOURCES_MAX:
        raise PatternError(
            "A marathon has 1 to 26 sources.", sources=len(sources), limit=MARATHON_SOURCES_MAX
        )
    labels = [
        letter if source.label is None else source.label.strip().upper()
        for letter, source in zip(ascii_uppercase, sources, strict=False)
    ]
    if not all(len(label) == 1 and label in ascii_uppercase for label in labels):
        raise PatternError("The label of a source is a letter from A to Z.", labels=labels)
    if len(set(labels)) != len(labels):
        raise PatternError("Two sources have the same label.", labels=labels)
    return labels


def _shuffled(sources: Sequence[Source[T]], seed: str, preserve: bool) -> list[T]:
    places = [
        (number, index)
        for number, source in enumerate(sources)
        for index in range(len(source.items))
    ]
    numbers = random.Random(seed)  # only `random()` gives the same numbers in every Python
    order = sorted(places, key=lambda _: numbers.random())
    if preserve:
        order = _with_episodes_in_order(sources, order)
    return [sources[number].items[index] for number, index in order]


def _with_episodes_in_order(
    sources: Sequence[Source[T]], order: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    episodes = [
        iter([index for index, item in enumerate(source.items) if is_episode(item.title)])
        for source in sources
    ]
    return [
        (number, next(episodes[number]))
        if is_episode(sources[number].items[index].title)
        else (number, index)
        for number, index in order
    ]


def _interleaved(
    sources: dict[str, Source[T]], tokens: list[tuple[str, int]]
) -> tuple[list[T], list[str]]:
    if unknown := sorted({label for label, _ in tokens} - sources.keys()):
        raise PatternError("The pattern has labels without a source.", labels=unknown)
    taken = dict.fromkeys(sources, 0)
    used = dict.fromkeys(label for label, _ in tokens)
    items: list[T] = []
    while any(taken[label] < len(sources[label].items) for label in used):
        for label, count in tokens:
            start = taken[label]
            some = sources[label].items[start : start + count]
            items += some
            taken[label] += len(some)
    warnings = []
    for label, source in sources.items():
        if label not in used and source.items:
            items += source.items
            warnings.append(f"The pattern omits {label}: its items follow at the end.")
    return items, warnings
