"""The guided run behind `make demo`: the tutorial's keyspace at work on a SQLite file, each call beside the rows it makes.

`clips` is the tutorial's program, the same text that docs/tutorial.md explains.
"""

from keyhouse.demo.clips import BOARD, CLIP, Clip

__all__ = ["BOARD", "CLIP", "Clip"]
