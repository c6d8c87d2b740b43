"""Text as it is searched: folded, and split into words. Pure.

Folding ignores case, compatibility forms and diacritics: `Ｃafé`, `CAFE` and `cafe` are equal, `ß`
is `ss`, `ø` is `o`. Marks that make another letter stay: vowel signs and viramas of Indic scripts,
voiced kana, tone marks of Thai and Lao.

A word is a run of letters, digits and marks; everything else separates words. Scripts that write no
spaces (Han, kana, Thai, Lao, Khmer, Burmese, Tibetan) have one word per character, so that any part
of a text is found as a phrase.

Any text can be folded, in time that grows with its length: of a run of combining marks the first 30
count, and a long text is folded in pieces.
"""

import unicodedata
from typing import Final

from keyhouse.normalization import normal_form, pieces, stream_safe
from keyhouse.search.limits import SEARCH_PIECE_CHARS

__all__ = ["FOLDING_VERSION", "fold", "words"]

FOLDING_VERSION: Final = f"1-{unicodedata.unidata_version}"
"""Changes when the same text would have other words: files of another version are built again."""

_LETTERS: Final = str.maketrans(
    {
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "æ": "ae",
        "œ": "oe",
        "ı": "i",
        "ħ": "h",
        "ŧ": "t",
    }
)
"""Letters with a stroke, and ligatures, which Unicode does not decompose."""

_UNSPACED: Final = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x0F00, 0x0FFF),  # Tibetan
    (0x1000, 0x109F),  # Burmese
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),
    (0x3040, 0x30FF),  # kana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),
)


def fold(text: str) -> str:
    """Return the text without case, compatibility forms and diacritics. Folding twice changes
    nothing."""
    if text.isascii():
        return text.lower()
    return "".join(map(_fold_piece, pieces(stream_safe(text), SEARCH_PIECE_CHARS)))


def words(text: str) -> list[str]:
    """Return the folded words of a text, in order."""
    return fold(text).translate(_WORDS).split()


def is_unspaced(character: str) -> bool:
    """Return whether the character is a word by itself."""
    point = ord(character)
    return point >= _UNSPACED[0][0] and any(low <= point <= high for low, high in _UNSPACED)


def _fold_piece(text: str) -> str:
    while (folded := _fold_once(text)) != text:
        text = folded
    return text


def _fold_once(text: str) -> str:
    folded = normal_form("NFKC", text).casefold()
    marked = normal_form("NFD", folded)
    plain = "".join([each for each in marked if not _is_diacritic(each)])
    return normal_form("NFKC", plain).translate(_LETTERS)


def _is_diacritic(character: str) -> bool:
    """Accents (200 and above) and the points of Hebrew, Arabic and Syriac (10 to 36), by their
    combining class."""
    combining = unicodedata.combining(character)
    return combining >= 200 or 10 <= combining <= 36


class _WordTable(dict[int, str]):
    """A table for `str.translate`: words are left, everything else becomes spaces."""

    def __missing__(self, point: int) -> str:
        character = chr(point)
        category = unicodedata.category(character)
        if category == "Cf" or 0xFE00 <= point <= 0xFE0F or 0xE0100 <= point <= 0xE01EF:
            folded = ""  # soft hyphens, joiners, variation selectors
        elif category[0] not in "LNM":
            folded = " "
        else:
            folded = f" {character} " if is_unspaced(character) else character
        self[point] = folded
        return folded


_WORDS: Final = _WordTable()
