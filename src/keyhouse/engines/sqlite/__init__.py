"""The SQLite engine: one file, many readers, one writer that commits in groups. Through `apsw`.

`SqliteEngine.open(path)` is all there is to call.
"""

from keyhouse.engines.sqlite.engine import SqliteEngine

__all__ = ["SqliteEngine"]
