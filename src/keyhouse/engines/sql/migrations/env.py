"""Run by Alembic, which is how it is told what to do: write the SQL of some migrations, for one layout and dialect.

Always as text. The engine's own driver runs it: SQLAlchemy's drivers would be a second way into the same database, and
for SQLite an old one.
"""

from alembic import context

context.configure(
    dialect_name=context.config.attributes["dialect"],
    version_table=context.config.attributes["layout"].version,
    transactional_ddl=False,  # the one who runs it puts a transaction around all of it
)
context.run_migrations()
