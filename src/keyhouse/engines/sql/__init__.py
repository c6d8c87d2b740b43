"""Shared by the two SQL engines: layouts, the text of their tables, and migrations.

Importing it needs no Alembic: an engine whose tables exist never loads it.
`keyhouse.engines.sql.migrate` upgrades or removes the tables.
"""

from keyhouse.engines.sql.layout import Layout, layout_of

__all__ = ["Layout", "layout_of"]
