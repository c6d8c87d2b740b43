"""Reads and changes the version of a file's tables, with the engine's own driver."""

import os
from collections.abc import Callable
from typing import TypeVar

import apsw
from apsw import Connection

from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.script import downgrade_script, upgrade_script
from keyhouse.engines.sql.version import needs_downgrade, needs_upgrade
from keyhouse.engines.sqlite.connections import check_owner, transaction, until_available
from keyhouse.engines.sqlite.error_map import translate

Answer = TypeVar("Answer")


class SqliteMigrations:
    def __init__(self, path: str, layout: Layout) -> None:
        self._path = path
        self._layout = layout

    def version(self) -> str | None:
        return self._in_transaction(self._version) if os.path.exists(self._path) else None

    def upgrade(self, to: str) -> None:
        def run(connection: Connection) -> None:
            found = self._version(connection)
            if needs_upgrade(found, to):
                connection.execute(upgrade_script(self._layout, "sqlite", found, to))

        self._in_transaction(run)

    def downgrade(self, to: str) -> None:
        def run(connection: Connection) -> None:
            found = self._version(connection)
            if needs_downgrade(found, to) and found is not None:
                connection.execute(downgrade_script(self._layout, "sqlite", found, to))

        if os.path.exists(self._path):
            self._in_transaction(run)
        else:
            needs_downgrade(None, to)

    def _version(self, connection: Connection) -> str | None:
        table = self._layout.version
        if (
            connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = ?", (table,)).get
            == 0
        ):
            return None
        found: str | None = connection.execute(f"SELECT version_num FROM {quoted(table)}").get
        return found

    def _in_transaction(self, run: Callable[[Connection], Answer]) -> Answer:
        """Run in one transaction, in a file that is new or belongs to Keyhouse."""

        def once() -> Answer:
            with transaction(connection, "BEGIN IMMEDIATE"):
                check_owner(connection, self._path)
                return run(connection)

        try:
            connection = Connection(self._path)
            try:
                return until_available(once)
            finally:
                connection.close()
        except apsw.Error as error:
            raise translate(error, self._path) from error
