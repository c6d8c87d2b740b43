"""The scores of a stream, as the overlay beside it shows them: `keyhouse serve scores:SCORES`."""

from msgspec import Struct

from keyhouse import Index, Meta, Record, Schema, Space


class Score(Struct, kw_only=True):
    """A viewer, and the points that they have."""

    id: str
    name: str
    points: int = 0


BY_POINTS = Index("points:{points:08d}:{id}")
SCORE = Record(Score, "score:{id}", BY_POINTS)
SCORES = Schema("scores", SCORE, meta=Meta(), space=Space("a channel"))
