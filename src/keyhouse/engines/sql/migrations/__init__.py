"""Alembic migrations of the SQL engines; `keyhouse.engines.sql.migrate` runs them."""
