"""The id of a playlist in its key: any text but `index`, which is the key of the list of
playlists."""

import re
from string import ascii_letters, digits
from typing import Any

from keyhouse.keys import TextSegment

__all__ = [
    "PlaylistId",
    "all_but",
]

_INDEX = "index"
_ALPHABET = "-_=." + ascii_letters + digits


class PlaylistId(TextSegment):
    """Text in the alphabet of NATS. Its pattern excludes `index`, so that the proof of unambiguous
    keys sees it."""

    description = "text other than 'index'"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pattern = all_but(_INDEX, _ALPHABET)

    def format(self, value: object) -> str:
        if value == _INDEX:
            raise ValueError("must not be 'index', the key of the list of playlists")
        return super().format(value)


def all_but(word: str, alphabet: str) -> str:
    """Return a regular expression for all non-empty text of the alphabet except the word.

    It uses no lookahead, which the proof of unambiguous keys does not support: text differs from
    the word at some letter, or stops within it, or continues after it.
    """
    every = f"[{re.escape(alphabet)}]"
    pattern = f"{every}+"
    for index in range(len(word) - 1, -1, -1):
        letter = word[index]
        differs = f"[{re.escape(alphabet.replace(letter, ''))}]{every}*"
        pattern = f"(?:{differs}|{re.escape(letter)}{pattern})" + ("?" if index else "")
    return pattern
