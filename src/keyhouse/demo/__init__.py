"""The guided tour of `make demo`: the tutorial's calls on a SQLite file, with the rows they write.

`clips` is the program of docs/tutorial.md.
"""

from keyhouse.demo.clips import BOARD, CLIP, Clip

__all__ = ["BOARD", "CLIP", "Clip"]
