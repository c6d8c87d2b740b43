"""The first tables."""

from alembic import context, op
from sqlalchemy.schema import CreateIndex, CreateTable

from keyhouse.engines.sql import postgres, sqlite
from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.tables import tables

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    layout: Layout = context.config.attributes["layout"]
    dialect = context.config.attributes["dialect"]
    for table in tables(layout, dialect).sorted_tables:
        op.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            op.execute(CreateIndex(index))
    if dialect == "postgresql":
        op.execute(postgres.commit_function(layout))
        op.execute(postgres.sweep_function(layout))
    else:
        for statement in (*sqlite.beside_the_tables(layout), *sqlite.header(version=1)):
            op.execute(statement)


def downgrade() -> None:
    layout: Layout = context.config.attributes["layout"]
    dialect = context.config.attributes["dialect"]
    if dialect == "postgresql":
        op.execute(f"DROP FUNCTION {postgres.sweep_name(layout)}")
        op.execute(f"DROP FUNCTION {postgres.commit_name(layout)}")
    elif layout.large_values is not None:
        op.execute(f"DROP VIEW {quoted(layout.documents)}")
    for table in reversed(tables(layout, dialect).sorted_tables):
        op.execute(f"DROP TABLE {quoted(table.name)}")
