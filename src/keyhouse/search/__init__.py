"""Full-text search over the records of a store: a file per space, fed by the store's changes.

A `SearchSchema` declares which records are searched and by which texts. A `SearchIndex` keeps one
file per space up to date and answers queries. The files are derived from the store: one that is
missing, damaged or too old is built again.
"""

from keyhouse.search.folding import fold, words
from keyhouse.search.index import SearchIndex
from keyhouse.search.query import match_expression, parse_query
from keyhouse.search.results import SearchHit, SearchPage
from keyhouse.search.schema import SearchSchema, SearchSource
from keyhouse.search.snippet import SnippetPart, snippet

__all__ = [
    "SearchHit",
    "SearchIndex",
    "SearchPage",
    "SearchSchema",
    "SearchSource",
    "SnippetPart",
    "fold",
    "match_expression",
    "parse_query",
    "snippet",
    "words",
]
