"""Snippets: the part of a text in which a query's words are, with those words marked. Pure."""

import unicodedata
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from keyhouse.search.folding import is_unspaced, words
from keyhouse.search.query import parse_query

__all__ = ["SnippetPart", "snippet"]


class SnippetPart(NamedTuple):
    """A piece of the text. Escape it before it becomes HTML."""

    text: str
    is_match: bool


def snippet(
    text: str, query: str, *, chars_max: int = 160, prefix: bool = True
) -> list[SnippetPart]:
    """Return up to about `chars_max` characters of the text around the first word of the query.

    A cut is marked by an ellipsis. Without a match it is the start of the text.
    """
    terms = parse_query(query)
    wanted = {word for term in terms for word in term}
    start = terms[-1][-1] if terms and prefix else None
    parts = [SnippetPart(cell, _matches(cell, wanted, start)) for cell in _cells(text)]
    at = next((at for at, part in enumerate(parts) if part.is_match), 0)
    first = at
    while first > 0 and _chars(parts[first - 1 : at]) <= chars_max // 4:
        first -= 1
    stop = first + 1
    while stop < len(parts) and _chars(parts[first : stop + 1]) <= chars_max:
        stop += 1
    pieces = [SnippetPart("…", False)] if first else []
    pieces += parts[first:stop]
    if stop < len(parts):
        pieces.append(SnippetPart("…", False))
    return _merged(pieces)


def _chars(parts: list[SnippetPart]) -> int:
    return sum(len(part.text) for part in parts)


def _merged(parts: list[SnippetPart]) -> list[SnippetPart]:
    """Join neighbours that are both marked, or both not."""
    return [
        SnippetPart("".join(part.text for part in group), is_match)
        for is_match, group in groupby(parts, key=lambda part: part.is_match)
    ]


def _cells(text: str) -> Iterator[str]:
    """Split a text into words, characters of scripts without spaces, and what is between them."""
    cell, in_word = "", False
    for character in text:
        is_word = unicodedata.category(character)[0] in "LNM" or (in_word and character == "\xad")
        if cell and (is_word != in_word or is_unspaced(character) or is_unspaced(cell[-1])):
            yield cell
            cell = ""
        cell += character
        in_word = is_word
    if cell:
        yield cell


def _matches(cell: str, wanted: set[str], start: str | None) -> bool:
    return any(
        word in wanted or (start is not None and word.startswith(start)) for word in words(cell)
    )
