"""The PostgreSQL engine: a table for each system, commits in groups by one round trip each. Through `asyncpg`.

`PostgresEngine.open(url)` is all there is to call.
"""

from keyhouse.engines.postgres.engine import PostgresEngine

__all__ = ["PostgresEngine"]
