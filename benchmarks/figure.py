"""A figure: one row of the table, as numbers. How it is shown is the report's matter."""

import msgspec

from benchmarks.contest import Result


class Figure(msgspec.Struct, kw_only=True):
    """Ours against the limit, and against a peer where one is at hand: ratios of medians of the same run."""

    row: str
    work: str
    unit: str
    results: list[Result]
    goal: float
    peer_goal: float | None = None
    note: str = ""

    def median(self, name: str) -> float | None:
        return next((result.median for result in self.results if result.name == name), None)

    @property
    def ratio(self) -> float:
        ours, limit = self.median("ours"), self.median("limit")
        assert ours is not None and limit is not None
        return ours / limit

    @property
    def peer_ratio(self) -> float | None:
        ours, peer = self.median("ours"), self.median("peer")
        return None if ours is None or peer is None else ours / peer

    @property
    def reached(self) -> bool:
        peer = self.peer_ratio
        return self.ratio >= self.goal and (self.peer_goal is None or peer is None or peer >= self.peer_goal)
