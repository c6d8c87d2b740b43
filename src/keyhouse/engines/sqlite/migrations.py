"""The versions of a file's tables: which one is there, and going from one to another, through the engine's own driver."""

from collections.abc import Callable
from typing import TypeVar

import apsw
from apsw import Connection

from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.script import downgrade_script, upgrade_script
from keyhouse.engines.sql.version import HEAD, VERSIONS
from keyhouse.engines.sqlite.faults import translated
from keyhouse.engines.sqlite.file import check_owner, patiently, transaction

Answer = TypeVar("Answer")


class SqliteMigrations:
    def __init__(self, path: str, layout: Layout) -> None:
        self._path = path
        self._layout = layout

    def version(self) -> str | None:
        return self._in_transaction(self._version)

    def upgrade(self, to: str) -> None:
        def run(connection: Connection) -> None:
            found = self._version(connection)
            if found is None or (found in VERSIONS and found != (HEAD if to == "head" else to)):
                connection.execute(upgrade_script(self._layout, "sqlite", found, to))

        self._in_transaction(run)

    def downgrade(self, to: str) -> None:
        def run(connection: Connection) -> None:
            found = self._version(connection)
            if found is not None and found != to:
                connection.execute(downgrade_script(self._layout, "sqlite", found, to))

        self._in_transaction(run)

    def _version(self, connection: Connection) -> str | None:
        table = self._layout.version
        if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = ?", (table,)).get == 0:
            return None
        found: str | None = connection.execute(f"SELECT version_num FROM {quoted(table)}").get
        return found

    def _in_transaction(self, run: Callable[[Connection], Answer]) -> Answer:
        """All or nothing, in a file that is Keyhouse's or new."""

        def once() -> Answer:
            with transaction(connection, "BEGIN IMMEDIATE"):
                check_owner(connection, self._path)
                return run(connection)

        try:
            connection = Connection(self._path)
            try:
                return patiently(once)
            finally:
                connection.close()
        except apsw.Error as error:
            raise translated(error, self._path) from error
