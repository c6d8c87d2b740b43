"""Migrations by URL, for the command line and for whoever deploys: the tables of a layout, up and down.

An engine that finds no tables makes them by itself; between versions, someone has to say when.
"""

from importlib.util import find_spec
from typing import Protocol

from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.engines.sql.version import VERSIONS
from keyhouse.errors import UsageError

__all__ = ["current", "downgrade", "upgrade", "versions"]


def versions() -> tuple[str, ...]:
    """Every version that this code knows, in order."""
    return VERSIONS


def current(url: str) -> str | None:
    """Which version the tables are; `None`: there are none."""
    return _migrations(url).version()


def upgrade(url: str, to: str = "head") -> None:
    """Make the tables, or bring them up to a version."""
    _migrations(url).upgrade(to)


def downgrade(url: str, to: str = "base") -> None:
    """Take the tables back to a version. `base` is no tables at all, and none of their rows."""
    _migrations(url).downgrade(to)


class _Migrations(Protocol):
    def version(self) -> str | None: ...

    def upgrade(self, to: str) -> None: ...

    def downgrade(self, to: str) -> None: ...


def _migrations(url: str) -> _Migrations:
    bare, layout = split_layout(url)
    for driver in ("alembic", "sqlalchemy"):
        if find_spec(driver) is None:
            raise ImportError(
                "Migrations of tables need Alembic: pip install 'keyhouse[migrations]'"
            )
    match url.partition(":")[0]:
        case "sqlite":
            from keyhouse.engines.sqlite.migrations import SqliteMigrations

            return SqliteMigrations(sqlite_file(bare), layout or Layout())
        case "postgresql" | "postgres":
            from keyhouse.engines.postgres.migrations import PostgresMigrations

            return PostgresMigrations(bare, layout or Layout.named("keyhouse"))
    raise UsageError("Only the SQL engines have migrations: sqlite: and postgresql:")
