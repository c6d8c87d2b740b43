"""The result of one case, as numbers; the callers format it."""

import msgspec

from keyhouse.bench.comparison import Measurement


class Result(msgspec.Struct, kw_only=True):
    """Keyhouse against a baseline, and against a peer where one is installed.

    Ratios are of medians of one run. `baseline` describes the baseline. A goal is set only where
    the baseline is hand-written code.
    """

    case: str
    work: str
    unit: str
    measurements: list[Measurement]
    goal: float | None = None
    peer_goal: float | None = None
    note: str = ""
    baseline: str = ""

    def median(self, name: str) -> float | None:
        return next((each.median for each in self.measurements if each.name == name), None)

    @property
    def ratio(self) -> float | None:
        """Keyhouse / baseline, or None if there is no baseline."""
        ours, baseline = self.median("ours"), self.median("baseline")
        return None if ours is None or baseline is None else ours / baseline

    @property
    def peer_ratio(self) -> float | None:
        ours, peer = self.median("ours"), self.median("peer")
        return None if ours is None or peer is None else ours / peer

    @property
    def meets_goals(self) -> bool:
        ratio, peer = self.ratio, self.peer_ratio
        meets_goal = ratio is None or self.goal is None or ratio >= self.goal
        return meets_goal and (self.peer_goal is None or peer is None or peer >= self.peer_goal)
