"""How fast Keyhouse is here: contests against the same work done with nothing in between, in turns, in the same run.

`keyhouse bench` runs them on the user's own engine; `make bench` adds peers, growth and the bare drivers, which no user has
at hand. Both use these contests and this table, so that a figure means the same in both.
"""

from keyhouse.bench.contest import Contestant, Result, contest
from keyhouse.bench.drawing import svg
from keyhouse.bench.figure import Figure
from keyhouse.bench.measure import ROWS, Benched, left_out, measure
from keyhouse.bench.scratch import Scratch, scratch

__all__ = [
    "ROWS",
    "Benched",
    "Contestant",
    "Figure",
    "Result",
    "Scratch",
    "contest",
    "left_out",
    "measure",
    "scratch",
    "svg",
]
