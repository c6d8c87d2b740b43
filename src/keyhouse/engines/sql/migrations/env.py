"""Run by Alembic: generates the SQL of migrations for one layout and dialect.

Always offline. The engine's own driver runs the SQL: SQLAlchemy's drivers would be a second way to
access the same database, and for SQLite an outdated one.
"""

from alembic import context

context.configure(
    dialect_name=context.config.attributes["dialect"],
    version_table=context.config.attributes["layout"].version,
    transactional_ddl=False,  # the caller wraps everything in one transaction
)
context.run_migrations()
