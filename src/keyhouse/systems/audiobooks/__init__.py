"""Audiobooks: a library's authors, series, works and books, their audio files, and its listeners'
progress.

A space is a library. `schema` declares the keys and `records` the values; `isbn` and `playback`
hold the pure rules for both. Programs use the client:
`from keyhouse.systems.audiobooks.client import Audiobooks`.
"""

from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "audiobooks",
    title="Audiobook library",
    doc=__doc__,
    schemas="keyhouse.systems.audiobooks.schema:SCHEMAS",
    service="keyhouse.systems.audiobooks.service:SERVICE",
    remote="keyhouse.systems.audiobooks.remote",
    commands="keyhouse.systems.audiobooks.commands:app",
    limits="keyhouse.systems.audiobooks.limits",
    error_format="flat",
)
