"""The model test of the store: random operations, each result compared with an oracle.

`keyspace` declares rows of every kind; `oracle` computes the expected ones with plain dictionaries,
without the schema's code; `generator` generates operations; `player` applies each to both, and
`scans` does so for scans.
"""

from tests.model.comparison import Difference
from tests.model.generator import Generator, generate
from tests.model.player import Player, play

__all__ = ["Difference", "Generator", "Player", "generate", "play"]
