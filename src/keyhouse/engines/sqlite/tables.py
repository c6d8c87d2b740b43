"""Reads and changes the version of a file's tables, with the engine's own driver."""

import os

import apsw

from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.script import Plan
from keyhouse.engines.sqlite.connections import check_owner, transaction, until_available
from keyhouse.engines.sqlite.error_map import translate


def migrate(path: str, layout: Layout, plan: Plan) -> str | None:
    """Run the SQL of the plan in one transaction, in a file that is new or belongs to Keyhouse.

    Return the version that was found. A file is created only if there is something to run.
    """
    if not os.path.exists(path) and not plan(None):
        return None

    def once() -> str | None:
        with transaction(connection, "BEGIN IMMEDIATE"):
            check_owner(connection, path)
            before = _version(connection, layout)
            connection.execute(plan(before))
            return before

    try:
        connection = apsw.Connection(path)
        try:
            return until_available(once)
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate(error, path) from error


def _version(connection: apsw.Connection, layout: Layout) -> str | None:
    name = (layout.version,)
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = ?", name).get:
        return None
    stored: str | None = connection.execute(f"SELECT version_num FROM {quoted(layout.version)}").get
    return stored
