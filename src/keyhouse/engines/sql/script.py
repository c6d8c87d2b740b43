"""The SQL of migrations, as Alembic writes it: text for a driver to run, or for a database's owner to read first."""

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
    """From the version `current` (`None`: there are no tables yet) up."""
    config = _config(layout, dialect)
    command.upgrade(config, to if current is None else f"{current}:{to}", sql=True)
    return _written(config)


@lru_cache(maxsize=64)
def downgrade_script(layout: Layout, dialect: Dialect, current: str, to: str = "base") -> str:
    """From the version `current` down; all the way, nothing is left."""
    config = _config(layout, dialect)
    command.downgrade(config, f"{current}:{to}", sql=True)
    end = f"DROP TABLE {quoted(layout.version)};\n" if to == "base" else ""
    return _written(config) + end


def _config(layout: Layout, dialect: Dialect) -> Config:
    config = Config(output_buffer=io.StringIO(), attributes={"layout": layout, "dialect": dialect})
    config.set_main_option("script_location", os.fspath(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _written(config: Config) -> str:
    buffer = config.output_buffer
    assert isinstance(buffer, io.StringIO)
    return buffer.getvalue()
