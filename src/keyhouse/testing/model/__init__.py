"""The model test of the store: random operations on a keyspace with every kind of row, each answer compared with an oracle.

`keyspace` declares the rows; `oracle` says what must be there, in plain dictionaries and without the schema's code;
`generator` draws operations; `player` puts each to both, and `scans` those that read in order.
"""

from keyhouse.testing.model.comparison import Difference
from keyhouse.testing.model.generator import Generator, generate
from keyhouse.testing.model.player import Player, play

__all__ = ["Difference", "Generator", "Player", "generate", "play"]
