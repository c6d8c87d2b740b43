"""The program of the tutorial: `clips` is that of docs/tutorial.md, and of `make demo`."""

from keyhouse.demo.clips import BOARD, CLIP, Clip

__all__ = ["BOARD", "CLIP", "Clip"]
