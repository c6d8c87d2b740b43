"""Generates the SQL of migrations with Alembic, to be run by a driver or reviewed by a DBA.

Alembic is imported when there is something to change: it takes half a second.
"""

import io
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.version import needs_downgrade, needs_upgrade

FOLDER = Path(__file__).parent / "migrations"

Dialect = Literal["postgresql", "sqlite"]

Plan = Callable[[str | None], str]
"""Returns the SQL to run on tables of a version (None: no tables), empty if there is none."""


@lru_cache(maxsize=64)
def upgrade_script(layout: Layout, dialect: Dialect, version: str | None, to: str = "head") -> str:
    """Return the SQL to upgrade from a version (None: no tables), or to create the tables."""
    if not needs_upgrade(version, to):
        return ""
    return _script("upgrade", layout, dialect, to if version is None else f"{version}:{to}")


@lru_cache(maxsize=64)
def downgrade_script(
    layout: Layout, dialect: Dialect, version: str | None, to: str = "base"
) -> str:
    """Return the SQL to downgrade from a version; to `base`, it drops everything."""
    if not needs_downgrade(version, to):
        return ""
    end = f"DROP TABLE {quoted(layout.version)};\n" if to == "base" else ""
    return _script("downgrade", layout, dialect, f"{version}:{to}") + end


def _script(command_name: str, layout: Layout, dialect: Dialect, versions: str) -> str:
    from alembic import command
    from alembic.config import Config

    output = io.StringIO()
    config = Config(output_buffer=output, attributes={"layout": layout, "dialect": dialect})
    config.set_main_option("script_location", os.fspath(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    getattr(command, command_name)(config, versions, sql=True)
    return output.getvalue()
