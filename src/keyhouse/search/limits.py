"""Limits of full-text search."""

from typing import Final

SEARCH_QUERY_CHARS_MAX: Final = 1_000
"""The query of a full-text search."""

SEARCH_PIECE_CHARS: Final = 4_096
"""Characters of a text that are folded in one step: a thread that folds a long text lets others run
in between."""

SEARCH_HITS_MAX: Final = 1_000
"""Hits in one page of a full-text search."""

SEARCH_SPACES_OPEN_MAX: Final = 64
"""Spaces whose search file one process keeps open: each has two connections and a watch."""
