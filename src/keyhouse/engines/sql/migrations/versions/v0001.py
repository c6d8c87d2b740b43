"""The first tables. The next migration freezes their text here."""

from types import ModuleType

from alembic import context, op

from keyhouse.engines.sql import postgres, sqlite

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

_OF_DIALECT = {"postgresql": postgres, "sqlite": sqlite}


def upgrade() -> None:
    for statement in _of_dialect().create(context.config.attributes["layout"]):
        op.execute(statement)


def downgrade() -> None:
    for statement in _of_dialect().drop(context.config.attributes["layout"]):
        op.execute(statement)


def _of_dialect() -> ModuleType:
    return _OF_DIALECT[context.config.attributes["dialect"]]
