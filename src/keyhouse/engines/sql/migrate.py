"""Table migrations by URL, for the CLI and for deployments.

An engine creates missing tables by itself; an upgrade between versions is always explicit.
"""

from importlib.util import find_spec
from typing import Protocol

from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.engines.sql.version import VERSIONS
from keyhouse.errors import UsageError
from keyhouse.install import install_line

__all__ = ["current", "downgrade", "upgrade", "versions"]


def versions() -> tuple[str, ...]:
    """Return every known version, in order."""
    return VERSIONS


def current(url: str) -> str | None:
    """Return the version of the tables, or None if there are no tables."""
    return _migrations(url).version()


def upgrade(url: str, to: str = "head") -> None:
    """Create the tables, or upgrade them to a version."""
    _migrations(url).upgrade(to)


def downgrade(url: str, to: str = "base") -> None:
    """Downgrade the tables to a version. `base` drops them with every row."""
    _migrations(url).downgrade(to)


class _Migrations(Protocol):
    def version(self) -> str | None: ...

    def upgrade(self, to: str) -> None: ...

    def downgrade(self, to: str) -> None: ...


def _migrations(url: str) -> _Migrations:
    bare, layout = split_layout(url)
    for driver in ("alembic", "sqlalchemy"):
        if find_spec(driver) is None:
            raise ImportError(f"Table migrations need Alembic: {install_line('migrations')}")
    match url.partition(":")[0]:
        case "sqlite":
            from keyhouse.engines.sqlite.migrations import SqliteMigrations

            return SqliteMigrations(sqlite_file(bare), layout or Layout())
        case "postgresql" | "postgres":
            from keyhouse.engines.postgres.migrations import PostgresMigrations

            return PostgresMigrations(bare, layout or Layout.named("keyhouse"))
    raise UsageError("Only the SQL engines have table migrations: sqlite: and postgresql:")
