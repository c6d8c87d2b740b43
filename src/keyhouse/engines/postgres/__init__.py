"""The PostgreSQL engine, through `asyncpg`: a table per system, one round trip per commit group.

Open it with `PostgresEngine.open(url)`.
"""

from keyhouse.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
