"""Steps that a backtracking matcher takes, counted: the growth of a regular expression's time
without a clock.

`steps` walks the tree of `re` as its matcher does, without its shortcuts: it takes at least as many
steps. `attacks` makes texts of a pattern itself: a way to each repetition, what it repeats, many
times, and an end that does not match. Linear patterns take four times the steps for four times the
text; quadratic ones sixteen times, and those with nested repetitions reach the limit.
"""

import re
import re._constants as codes  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import islice
from typing import Any, Final

STEPS_MAX: Final = 100_000
SHORT: Final = 20
LONG: Final = 4 * SHORT
ATTACKS_MAX: Final = 16
FRAMES_MAX: Final = 20_000
"""Frames of Python that a deep match needs."""
GROWTH_MAX: Final = 7.0
"""Steps of a text of four times the length: 4 if linear, 16 if quadratic."""

_ALPHABET: Final = [*map(chr, range(256)), "\u0300", "\u0661", "\u2028", "\u3000", "漢"]
_ENDS: Final = ("", "\0", "!")
_REPEATS: Final = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_SINGLE: Final = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)

Next = Callable[[int], bool]


class TooManyStepsError(Exception):
    pass


def growth(pattern: str, flags: int, *, is_search: bool) -> tuple[float, str]:
    """Return the largest growth of the steps over all attacks, and the text that has it."""
    frames = sys.getrecursionlimit()
    sys.setrecursionlimit(FRAMES_MAX)
    try:
        return _growth(Matcher(pattern, flags), is_search=is_search)
    finally:
        sys.setrecursionlimit(frames)


def _growth(matcher: "Matcher", *, is_search: bool) -> tuple[float, str]:
    worst, text = 0.0, ""
    for attack in matcher.attacks():
        try:
            short = matcher.steps(attack(SHORT), is_search=is_search)
            ratio = matcher.steps(attack(LONG), is_search=is_search) / max(short, SHORT)
        except TooManyStepsError:
            return float("inf"), attack(3)
        if ratio > worst:
            worst, text = ratio, attack(3)
    return worst, text


class Matcher:
    def __init__(self, pattern: str, flags: int) -> None:
        self._tree: Any = parser.parse(pattern, flags)
        self._flags = self._tree.state.flags
        self._left = 0
        self._text = ""
        self._sets: dict[int, frozenset[str]] = {}
        self._kept: list[Any] = []  # so that no id is used twice

    def steps(self, text: str, *, is_search: bool) -> int:
        """Return the steps of a full match, or of a search for all places."""
        self._text, self._left = text, STEPS_MAX
        start, ends = 0, [len(text)]

        def found(end: int) -> bool:
            ends.append(end)
            return is_search or end == len(text)

        while start <= len(text):
            try:
                is_found = self._match(list(self._tree), 0, start, found)
            except RecursionError:
                raise TooManyStepsError from None
            if not is_search:
                break
            start = max(ends[-1], start + 1) if is_found else start + 1
        return STEPS_MAX - self._left

    # Matching: each node is followed by the rest of its sequence, and then by `done`

    def _match(self, nodes: list[Any], index: int, at: int, done: Next) -> bool:
        self._left -= 1
        if self._left <= 0:
            raise TooManyStepsError
        if index == len(nodes):
            return done(at)
        code, value = nodes[index]

        def following(end: int) -> bool:
            return self._match(nodes, index + 1, end, done)

        if code in _SINGLE:
            return (
                at < len(self._text)
                and self._text[at] in self._chars(code, value)
                and following(at + 1)
            )
        if code is codes.SUBPATTERN:
            return self._match(list(value[3]), 0, at, following)
        if code is codes.ATOMIC_GROUP:
            end = self._first_end(list(value), at)
            return end is not None and following(end)
        if code is codes.BRANCH:
            return any(self._match(list(each), 0, at, following) for each in value[1])
        if code in _REPEATS:
            return self._repeat(code, value, at, following)
        if code in (codes.ASSERT, codes.ASSERT_NOT):
            return self._asserts(code, value, at) and following(at)
        if code is codes.AT:
            return self._is_at(value, at) and following(at)
        if code is codes.GROUPREF:
            return following(at)
        raise NotImplementedError(code)

    def _first_end(self, nodes: list[Any], at: int) -> int | None:
        ends: list[int] = []

        def keep(end: int) -> bool:
            ends.append(end)
            return True

        return ends[0] if self._match(nodes, 0, at, keep) else None

    def _repeat(self, code: Any, value: Any, at: int, following: Next) -> bool:
        least, most, body = value
        nodes = list(body)
        if code is codes.POSSESSIVE_REPEAT:
            count = 0
            while count < most and (end := self._first_end(nodes, at)) is not None and end > at:
                at, count = end, count + 1
            return count >= least and following(at)
        if len(nodes) == 1 and nodes[0][0] in _SINGLE:
            return self._repeat_single(code, nodes[0], least, most, at, following)

        def again(count: int, at: int) -> bool:
            def more(end: int) -> bool:
                return end > at and again(count + 1, end)

            if count < least:
                return self._match(nodes, 0, at, lambda end: again(count + 1, end))
            if code is codes.MIN_REPEAT:
                return following(at) or (count < most and self._match(nodes, 0, at, more))
            return (count < most and self._match(nodes, 0, at, more)) or following(at)

        return again(0, at)

    def _repeat_single(
        self, code: Any, node: Any, least: int, most: int, at: int, following: Next
    ) -> bool:
        """Repeat one character without recursion, as the matcher of `re` does."""
        chars, end = self._chars(*node), at
        while end < len(self._text) and end - at < most and self._text[end] in chars:
            self._left -= 1
            end += 1
        ends = range(at + least, end + 1)
        return any(map(following, ends if code is codes.MIN_REPEAT else reversed(ends)))

    def _asserts(self, code: Any, value: Any, at: int) -> bool:
        direction, nodes = value
        start = at if direction > 0 else at - nodes.getwidth()[0]
        found = start >= 0 and self._match(list(nodes), 0, start, lambda _: True)
        return found is (code is codes.ASSERT)

    def _is_at(self, where: Any, at: int) -> bool:
        text = self._text
        if where in (codes.AT_BEGINNING, codes.AT_BEGINNING_STRING):
            return at == 0
        if where in (codes.AT_END, codes.AT_END_STRING):
            return at == len(text)
        before = at > 0 and (text[at - 1].isalnum() or text[at - 1] == "_")
        after = at < len(text) and (text[at].isalnum() or text[at] == "_")
        return (before != after) is (where is codes.AT_BOUNDARY)

    def _chars(self, code: Any, value: Any) -> frozenset[str]:
        key = id(value) if code is codes.IN else hash((code, value))
        if key not in self._sets:
            self._kept.append(value)
            self._sets[key] = _chars_of(code, value, self._flags)
        return self._sets[key]

    # Attacks

    def attacks(self) -> Iterator[Callable[[int], str]]:
        """Yield functions that make a text of about a number of characters."""
        pumps = list(dict.fromkeys(each for each in self._pumps(list(self._tree), "") if each[1]))
        pairs = ((before, pump + other) for before, pump in pumps for _, other in pumps)
        made = list(dict.fromkeys([*pumps[:ATTACKS_MAX], *islice(pairs, ATTACKS_MAX)]))
        for before, pump in made:
            for end in _ENDS:
                yield lambda size, before=before, pump=pump, end=end: (  # type: ignore[misc]
                    before + pump * (size // len(pump) + 1) + end
                )

    def _pumps(self, nodes: Iterable[Any], before: str) -> Iterator[tuple[str, str]]:
        """Yield what is before a repetition, and what it repeats."""
        for code, value in nodes:
            if code in _REPEATS:
                least, most, body = value
                if most > LONG // 4:
                    yield before, self._example(body)
                    for char in sorted(self._all_chars(body))[:1]:
                        yield before, char
                    for char in " a0_-.":
                        if char in self._all_chars(body):
                            yield before, char
                yield from self._pumps(body, before)
                before += self._example(body) * max(least, 0)
            elif code is codes.SUBPATTERN:
                yield from self._pumps(value[3], before)
                before += self._example(value[3])
            elif code is codes.ATOMIC_GROUP:
                yield from self._pumps(value, before)
                before += self._example(value)
            elif code is codes.BRANCH:
                for each in value[1]:
                    yield from self._pumps(each, before)
                before += self._example(value[1][0])
            elif code in (codes.ASSERT, codes.ASSERT_NOT):
                yield from self._pumps(value[1], before)
            elif code in _SINGLE:
                before += min(self._chars(code, value), default="")

    def _all_chars(self, nodes: Iterable[Any]) -> frozenset[str]:
        nodes = list(nodes)
        is_single = len(nodes) == 1 and nodes[0][0] in _SINGLE
        return self._chars(*nodes[0]) if is_single else frozenset()

    def _example(self, nodes: Iterable[Any]) -> str:
        """Return a short text that the nodes match, if nothing around them matters."""
        text = ""
        for code, value in nodes:
            if code in _SINGLE:
                chars = self._chars(code, value)
                text += next((char for char in "a0 -_." if char in chars), min(chars, default=""))
            elif code is codes.SUBPATTERN:
                text += self._example(value[3])
            elif code is codes.ATOMIC_GROUP:
                text += self._example(value)
            elif code is codes.BRANCH:
                text += self._example(value[1][0])
            elif code in _REPEATS:
                text += self._example(value[2]) * max(
                    value[0], 1 if value[0] == 0 and not text else 0
                )
        return text


def _chars_of(code: Any, value: Any, flags: int) -> frozenset[str]:
    """Return the characters of the alphabet that a node matches, asked of `re` itself."""
    return frozenset(char for char in _ALPHABET if _compiled(_source(code, value), flags)(char))


@cache
def _compiled(source: str, flags: int) -> Callable[[str], Any]:
    return re.compile(source, flags & ~re.DEBUG).fullmatch


_CATEGORIES: Final = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def _source(code: Any, value: Any) -> str:
    if code is codes.ANY:
        return "."
    if code is codes.LITERAL:
        return re.escape(chr(value))
    if code is codes.NOT_LITERAL:
        return f"[^{re.escape(chr(value))}]"
    parts = ""
    for kind, part in value:
        if kind is codes.NEGATE:
            parts += "^"
        elif kind is codes.LITERAL:
            parts += re.escape(chr(part))
        elif kind is codes.RANGE:
            parts += f"{re.escape(chr(part[0]))}-{re.escape(chr(part[1]))}"
        else:
            parts += _CATEGORIES[part]
    return f"[{parts}]"
