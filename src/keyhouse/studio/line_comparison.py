"""Two texts side by side, with the lines that differ marked, in a bounded number of steps.

The lines that both texts begin and end with are set aside; the rest is compared by the greedy
algorithm of Myers ("An O(ND) difference algorithm", 1986). It is fast where few lines differ,
however often a line is repeated. Where many do, it would hold the event loop: beyond the steps that
a page has, texts are shown without marks.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

PAGE_STEPS_MAX: Final = 20_000
"""Steps of all comparisons of a page together: about 10 ms. A line that is read counts as one."""

Pieces = list[tuple[str, bool]]
"""A text in pieces of whole lines, each with whether the other text does not have them there."""


class ComparedTexts(NamedTuple):
    """`is_marked` is false if comparing would have taken too long."""

    before: Pieces
    after: Pieces
    is_marked: bool = True


class LineComparer:
    """Compares the texts of one page. None is an absent text."""

    def __init__(self, steps_max: int = PAGE_STEPS_MAX) -> None:
        self._steps = steps_max

    def compare(self, before: str | None, after: str | None) -> ComparedTexts:
        if before is None or after is None:
            return ComparedTexts(_whole(before, is_changed=True), _whole(after, is_changed=True))
        size = before.count("\n") + after.count("\n") + 2
        if size > self._steps:
            return _unmarked(before, after)
        self._steps -= size
        lines, others = before.split("\n"), after.split("\n")
        start = _common_start(lines, others)
        end = _common_start(lines[start:][::-1], others[start:][::-1])
        kept = self._kept(lines[start : len(lines) - end], others[start : len(others) - end])
        if kept is None:
            return _unmarked(before, after)
        in_both = [(each, each) for each in range(start)]
        in_both += [(start + left, start + right) for left, right in kept]
        in_both += [(len(lines) - each, len(others) - each) for each in range(end, 0, -1)]
        return ComparedTexts(
            _pieces(lines, {left for left, _ in in_both}),
            _pieces(others, {right for _, right in in_both}),
        )

    def _kept(self, lines: Sequence[str], others: Sequence[str]) -> list[tuple[int, int]] | None:
        """Return the places of the lines that both have, in order; None if there are not enough
        steps. A comparison may take half of those that are left."""
        common = set(lines) & set(others)
        left = [place for place, line in enumerate(lines) if line in common]
        right = [place for place, line in enumerate(others) if line in common]
        allowed = self._steps // 2
        kept, taken = _common_places(
            [lines[place] for place in left], [others[place] for place in right], allowed
        )
        self._steps -= taken
        return None if kept is None else [(left[x], right[y]) for x, y in kept]


def _common_places(
    a: Sequence[str], b: Sequence[str], steps_max: int
) -> tuple[list[tuple[int, int]] | None, int]:
    """Return the places of a longest common subsequence, or None, and the steps taken.

    `reached[k]` is how many lines of `a` are passed on the diagonal `k`, by which their number is
    ahead of that of `b`; `history` has it before each further edit.
    """
    reached, steps = {1: 0}, 0
    history: list[dict[int, int]] = []
    a_end, b_end = len(a), len(b)
    for edits in range(a_end + b_end + 1):
        history.append(reached.copy())
        for k in range(-edits, edits + 1, 2):
            x = start = _entered(reached, k, edits)
            while x < a_end and x - k < b_end and a[x] == b[x - k]:
                x += 1
            reached[k] = x
            steps += 1 + x - start
            if x >= a_end and x - k >= b_end:
                return _backtracked(history, a_end, b_end), steps
            if steps >= steps_max:
                return None, steps
    raise AssertionError("all lines of both are passed after as many edits")


def _entered(reached: dict[int, int], k: int, edits: int) -> int:
    """Return how many lines are passed after the next edit, by which diagonal `k` is entered."""
    if k == -edits or (k != edits and reached[k - 1] < reached[k + 1]):
        return reached[k + 1]
    return reached[k - 1] + 1


def _backtracked(history: list[dict[int, int]], x: int, y: int) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for edits in range(len(history) - 1, -1, -1):
        reached, k = history[edits], x - y
        is_insertion = k == -edits or (k != edits and reached[k - 1] < reached[k + 1])
        start = _entered(reached, k, edits)
        kept += [(each, each - k) for each in range(x - 1, start - 1, -1)]
        x, y = (start, start - k - 1) if is_insertion else (start - 1, start - k)
    kept.reverse()
    return kept


def _common_start(lines: Sequence[str], others: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    for place, (line, other) in enumerate(zip(lines, others, strict=False)):
        if line != other:
            return place
    return min(len(lines), len(others))


def _pieces(lines: Sequence[str], kept: set[int]) -> Pieces:
    """Return runs of lines that are kept or not, each with its line ends."""
    pieces: Pieces = []
    start = 0
    for place in range(1, len(lines) + 1):
        if place == len(lines) or (place in kept) != (start in kept):
            text = "\n".join(lines[start:place]) + ("\n" if place < len(lines) else "")
            pieces.append((text, start not in kept))
            start = place
    return pieces


def _whole(text: str | None, *, is_changed: bool) -> Pieces:
    return [(text, is_changed)] if text else []


def _unmarked(before: str, after: str) -> ComparedTexts:
    return ComparedTexts(
        _whole(before, is_changed=False), _whole(after, is_changed=False), is_marked=False
    )
