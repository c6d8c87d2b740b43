"""Reads and changes the version of the tables, through the engine's own driver."""

from collections.abc import Awaitable, Callable
from typing import Final

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.version import needs_downgrade, needs_upgrade

# Not to_regclass: it may use what the session remembers from before it waited for the lock.
_EXISTS: Final = """SELECT true FROM pg_catalog.pg_class
    WHERE relname = $1 AND pg_catalog.pg_table_is_visible(oid)"""


async def version(connection: Connection, layout: Layout) -> str | None:
    """Return the version of the tables, or None if there are no tables."""
    if not await connection.fetchval(_EXISTS, layout.version):
        return None
    found: str | None = await connection.fetchval(
        f"SELECT version_num FROM {quoted(layout.version)}"
    )
    return found


async def upgrade(connection: Connection, layout: Layout, to: str = "head") -> None:
    """Create the tables, or upgrade them to a version. Safe to call concurrently."""
    # Imports Alembic, which takes half a second: only when tables change.
    from keyhouse.engines.sql.script import upgrade_script

    async def run() -> None:
        found = await version(connection, layout)
        if needs_upgrade(found, to):
            await connection.execute(upgrade_script(layout, "postgresql", found, to))

    await _run_exclusively(connection, layout, run)


async def downgrade(connection: Connection, layout: Layout, to: str = "base") -> None:
    """Downgrade the tables to a version; `base` drops them with every row."""
    from keyhouse.engines.sql.script import downgrade_script

    async def run() -> None:
        found = await version(connection, layout)
        if needs_downgrade(found, to) and found is not None:
            await connection.execute(downgrade_script(layout, "postgresql", found, to))

    await _run_exclusively(connection, layout, run)


async def _run_exclusively(
    connection: Connection, layout: Layout, run: Callable[[], Awaitable[None]]
) -> None:
    """Run in one transaction, under an advisory lock."""
    await connection.execute("BEGIN")
    try:
        await connection.fetchval(
            "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", layout.version
        )
        await run()
        await connection.execute("COMMIT")
    except BaseException:
        if not connection.is_closed():
            await connection.execute("ROLLBACK")
        raise
