"""The version of the JSON of every record: its member, and its number."""

from typing import Final

__all__ = ["VERSION"]

VERSION: Final = ("version", 1)
