"""The model test of the store: random operations on a keyspace with every kind of row, each answer compared with an oracle.

`keyspace` declares the rows; `oracle` says what must be there, in plain dictionaries and without the schema's code;
`generator` draws operations; `player` puts each to both, and `scans` those that read in order.
"""

from tests.model.comparison import Difference
from tests.model.generator import Generator, generate
from tests.model.player import Player, play

__all__ = ["Difference", "Generator", "Player", "generate", "play"]
