"""Generates the SQL of migrations with Alembic, to be run by a driver or reviewed by a DBA."""

import io
import os
from functools import lru_cache
from pathlib import Path

from alembic import command
from alembic.config import Config

from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.tables import Dialect

FOLDER = Path(__file__).parent / "migrations"


@lru_cache(maxsize=64)
def upgrade_script(layout: Layout, dialect: Dialect, current: str | None, to: str = "head") -> str:
    """Return the SQL to upgrade from `current`, or to create the tables if that is None."""
    config = _config(layout, dialect)
    command.upgrade(config, to if current is None else f"{current}:{to}", sql=True)
    return _output(config)


@lru_cache(maxsize=64)
def downgrade_script(layout: Layout, dialect: Dialect, current: str, to: str = "base") -> str:
    """Return the SQL to downgrade from `current`; to `base`, it drops everything."""
    config = _config(layout, dialect)
    command.downgrade(config, f"{current}:{to}", sql=True)
    end = f"DROP TABLE {quoted(layout.version)};\n" if to == "base" else ""
    return _output(config) + end


def _config(layout: Layout, dialect: Dialect) -> Config:
    config = Config(output_buffer=io.StringIO(), attributes={"layout": layout, "dialect": dialect})
    config.set_main_option("script_location", os.fspath(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _output(config: Config) -> str:
    buffer = config.output_buffer
    assert isinstance(buffer, io.StringIO)
    return buffer.getvalue()
