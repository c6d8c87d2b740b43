"""The id of a playlist in its key: any text but `index`, which is the key of the list of all
playlists."""

import re
from string import ascii_letters, digits
from typing import Any

from keyhouse.keys import Text

__all__ = [
    "PlaylistId",
    "all_but",
]

_INDEX = "index"
_ALPHABET = "-_=." + ascii_letters + digits


class PlaylistId(Text):
    """Text in the alphabet of NATS. Its pattern leaves `index` out, where the proof that no two
    keys are one sees it."""

    what = "text other than 'index'"

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.pattern = all_but(_INDEX, _ALPHABET)

    def format(self, value: object) -> str:
        if value == _INDEX:
            raise ValueError("can't be 'index', which is the key of the list of all playlists")
        return super().format(value)


def all_but(word: str, alphabet: str) -> str:
    """A regular expression of every text of the alphabet, not empty, that is not the word: without
    looking ahead, which the proof can't do. A text leaves the word at some letter, or ends within
    it, or goes on behind it."""
    every = f"[{re.escape(alphabet)}]"
    pattern = f"{every}+"
    for index in range(len(word) - 1, -1, -1):
        letter = word[index]
        leaves = f"[{re.escape(alphabet.replace(letter, ''))}]{every}*"
        pattern = f"(?:{leaves}|{re.escape(letter)}{pattern})" + ("?" if index else "")
    return pattern
