"""A figure: one row of the table, as numbers. How it is shown is the report's matter."""

import msgspec

from keyhouse.bench.contest import Result


class Figure(msgspec.Struct, kw_only=True):
    """Ours against the limit, and against a peer where one is at hand: ratios of medians of the same run. `against` says
    what the limit is. A goal is set where the limit is the work by hand."""

    row: str
    work: str
    unit: str
    results: list[Result]
    goal: float | None = None
    peer_goal: float | None = None
    note: str = ""
    against: str = ""

    def median(self, name: str) -> float | None:
        return next((result.median for result in self.results if result.name == name), None)

    @property
    def ratio(self) -> float | None:
        """`None`: there is nothing to compare it with."""
        ours, limit = self.median("ours"), self.median("limit")
        return None if ours is None or limit is None else ours / limit

    @property
    def peer_ratio(self) -> float | None:
        ours, peer = self.median("ours"), self.median("peer")
        return None if ours is None or peer is None else ours / peer

    @property
    def reached(self) -> bool:
        ratio, peer = self.ratio, self.peer_ratio
        is_near = ratio is None or self.goal is None or ratio >= self.goal
        return is_near and (self.peer_goal is None or peer is None or peer >= self.peer_goal)
