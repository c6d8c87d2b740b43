"""The migrations of the SQL engines, in Alembic's form; `keyhouse.engines.sql.migrate` runs them."""
