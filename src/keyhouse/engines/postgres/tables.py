"""Reads and changes the version of the tables, through the engine's own driver."""

from typing import Final

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.script import Plan

# Not to_regclass: it may use what the session remembers from before it waited for the lock.
_EXISTS: Final = """SELECT true FROM pg_catalog.pg_class
    WHERE relname = $1 AND pg_catalog.pg_table_is_visible(oid)"""


async def version(connection: Connection, layout: Layout) -> str | None:
    """Return the version of the tables, or None if there are no tables."""
    if not await connection.fetchval(_EXISTS, layout.version):
        return None
    stored: str | None = await connection.fetchval(
        f"SELECT version_num FROM {quoted(layout.version)}"
    )
    return stored


async def migrate(connection: Connection, layout: Layout, plan: Plan) -> str | None:
    """Run the SQL of the plan in one transaction, under an advisory lock: concurrent calls wait.

    Return the version that was found.
    """
    await connection.execute("BEGIN")
    try:
        await connection.fetchval(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", layout.version
        )
        before = await version(connection, layout)
        if sql := plan(before):
            await connection.execute(sql)
        await connection.execute("COMMIT")
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
    return before
