"""Table migrations by URL, for the CLI and for deployments.

An engine creates missing tables by itself; an upgrade between versions is always explicit.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

from keyhouse.advice.install import install_line
from keyhouse.engines.retention import split_changes_kept
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.script import Dialect, downgrade_script, upgrade_script
from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.engines.sql.version import VERSIONS
from keyhouse.errors import UsageError

__all__ = ["current", "downgrade", "upgrade", "versions"]


def versions() -> tuple[str, ...]:
    """Return every known version, in order."""
    return VERSIONS


def current(url: str) -> str | None:
    """Return the version of the tables, or None if there are no tables."""
    return _migrate(url, lambda layout, dialect, version: "")


def upgrade(url: str, to: str = "head") -> None:
    """Create the tables, or upgrade them to a version."""
    _migrate(url, lambda layout, dialect, version: upgrade_script(layout, dialect, version, to))


def downgrade(url: str, to: str = "base") -> None:
    """Downgrade the tables to a version. `base` drops them with every row."""
    _migrate(url, lambda layout, dialect, version: downgrade_script(layout, dialect, version, to))


def _migrate(url: str, script: Callable[[Layout, Dialect, str | None], str]) -> str | None:
    """Run a script on the tables, with the engine's driver; return the version found."""
    bare, named = split_layout(split_changes_kept(url)[0])
    if find_spec("alembic") is None:
        raise ImportError(f"Table migrations need Alembic: {install_line('migrations')}")
    match url.partition(":")[0]:
        case "sqlite":
            from keyhouse.engines.sqlite.tables import migrate

            layout = named or Layout()
            return migrate(sqlite_file(bare), layout, partial(script, layout, "sqlite"))
        case "postgresql" | "postgres":
            from keyhouse.engines.postgres.server import Server

            layout = named or Layout.named("keyhouse")
            server = Server(bare, layout)
            return asyncio.run(server.migrate(partial(script, layout, "postgresql")))
    raise UsageError("Only the SQL engines have table migrations: sqlite: and postgresql:")
