"""What the two SQL engines share: how their tables are called and made, and the migrations that make them.

Importing it needs no SQLAlchemy: an engine that finds its tables never does. `keyhouse.engines.sql.migrate` brings a
database up to date, or takes the tables away.
"""

from keyhouse.engines.sql.layout import Layout, layout_of

__all__ = ["Layout", "layout_of"]
