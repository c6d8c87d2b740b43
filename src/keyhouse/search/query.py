"""Queries: what a person types, as an expression of FTS5. Pure.

There is no syntax to get wrong. The words of a query are separated by spaces; a record must have
all of them, in any of its texts. A word with punctuation in it (`AC/DC`, `don't`), or of a script
without spaces, is a phrase. The last word may be the start of a longer one.
"""

from collections.abc import Sequence

from keyhouse.errors import LimitError
from keyhouse.search.folding import words
from keyhouse.search.limits import SEARCH_QUERY_CHARS_MAX

__all__ = ["match_expression", "parse_query"]

Terms = list[tuple[str, ...]]
"""The phrases of a query, each of one or more folded words."""


def parse_query(text: str) -> Terms:
    """Return the phrases of a query, each once; empty if it has no word.

    Raises LimitError if the query is too long.
    """
    if len(text) > SEARCH_QUERY_CHARS_MAX:
        raise LimitError(
            "The query is too long.", characters=len(text), limit=SEARCH_QUERY_CHARS_MAX
        )
    terms = [phrase for term in text.split() if (phrase := tuple(words(term)))]
    return [term for at, term in enumerate(terms) if term not in terms[at + 1 :]]


def match_expression(terms: Terms, *, prefix: bool = True, columns: Sequence[str] = ()) -> str:
    """Return the FTS5 expression of a query that has words.

    `prefix`: the last word may be the start of one. `columns` restricts the search to these.
    """
    phrases = ['"' + " ".join(phrase) + '"' for phrase in terms]
    if prefix:
        phrases[-1] += " *"
    expression = " AND ".join(phrases)
    return f"{{{' '.join(columns)}}} : ({expression})" if columns else expression
