"""Audiobooks: a library's authors, series, works and books, their audio files, and its listeners'
progress.

A space is a library. `schema` declares the keys and `records` the values. `books`, `listening`,
`accounts` and `files` have the operations on them, each with its routes; `web` has the pages.
`libraries` puts the operations of a library together, and finds it for a caller. Programs use the
client: `from keyhouse_audiobooks.client import Audiobooks`.
"""

from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "audiobooks",
    title="Audiobook library",
    doc=__doc__,
    schemas="keyhouse_audiobooks.schema:SCHEMAS",
    service="keyhouse_audiobooks.service:SERVICE",
    remote="keyhouse_audiobooks.remote",
    commands="keyhouse_audiobooks.commands:app",
    limits="keyhouse_audiobooks.limits",
)
