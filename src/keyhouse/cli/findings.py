"""What `verify` finds, shown as it is found: a line for each finding, and the sums at the end."""

from collections import Counter

import msgspec

from keyhouse.cli.output import Part, Report, number, one_line, show_line, show_reports
from keyhouse.store import Finding

_SPACES_SHOWN = 10

_CURES = {
    "missing": "`--repair` writes the row",
    "wrong": "`--repair` writes the row anew",
    "dangling": "`--repair` takes the row away",
    "miscounted": "`--repair` counts, and writes the number",
    "unfolded": "look first: `--repair` folds the events, which counts twice what a state that was set back had counted",
    "conflict": "two records claim one row: change one of them, then verify again",
    "unreadable": "look at it with `keyhouse explain`, write the record anew, or `--drop` it",
    "unknown": "look whose it is; `--drop` deletes it",
}


class Findings:
    """`rows` were read in all spaces so far, `count` findings made, and `left` of them are not repaired."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._space = ""
        self._spaces = 0
        self._before = 0
        self._kinds: Counter[str] = Counter()
        self._left: Counter[str] = Counter()
        self.rows = 0
        self.repaired = 0

    @property
    def count(self) -> int:
        return self._kinds.total()

    @property
    def left(self) -> int:
        return self.count - self.repaired

    def enter(self, space: str) -> None:
        self._space, self._before = space, self.rows
        self._spaces += 1

    def read(self, rows: int) -> None:
        """So many of this space."""
        self.rows = self._before + rows

    def add(self, found: Finding) -> None:
        self._kinds[found.kind] += 1
        self._left[found.kind] += not found.repaired
        self.repaired += found.repaired
        if self._as_json:
            show_line({"space": self._space, **msgspec.structs.asdict(found)})
        else:
            state = "repaired" if found.repaired else "found"
            print(one_line(f"{state}: {found.kind} in {self._space}: {found.key} ({found.detail})"))

    def end(self, strangers: list[str]) -> None:
        """`strangers`: spaces that hold rows and are none of the system's."""
        if self._as_json:
            sums = {
                "rows": self.rows,
                "spaces": self._spaces,
                "findings": self.count,
                "left": self.left,
            }
            show_line({**sums, "other_spaces": strangers})
            return
        where = f"{number(self.rows, 'row')} of {number(self._spaces, 'space')}"
        text = f"{where} read, and all is as it should be."
        if self.count:
            text = f"{where} read: {number(self.count, 'finding')}, {self.repaired:,} repaired, {self.left:,} left."
        cures = [(kind, f"{times:,}", _CURES[kind]) for kind, times in self._left.items() if times]
        others = [(f"`{space}`",) for space in strangers[:_SPACES_SHOWN]]
        if len(strangers) > _SPACES_SHOWN:
            others.append((f"and {len(strangers) - _SPACES_SHOWN:,} more",))
        if self.count:
            print()
        parts = [
            Part("What to do", [*cures]),
            Part("Spaces that are none of this system's, not looked at", [*others]),
        ]
        show_reports([Report("Verified", text, parts)])
