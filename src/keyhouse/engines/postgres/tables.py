"""The tables' versions: which one is there, and going from one to another, through the engine's own driver."""

from collections.abc import Awaitable, Callable

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.sql.layout import Layout, quoted
from keyhouse.engines.sql.version import is_step_down, is_step_up


async def version(connection: Connection, layout: Layout) -> str | None:
    """Which version the tables are; `None`: there are none."""
    if await connection.fetchval("SELECT to_regclass($1)::text", quoted(layout.version)) is None:
        return None
    found: str | None = await connection.fetchval(
        f"SELECT version_num FROM {quoted(layout.version)}"
    )
    return found


async def upgrade(connection: Connection, layout: Layout, to: str = "head") -> None:
    """Make the tables, or bring them up to a version. Of many who do so at once, one does."""
    from keyhouse.engines.sql.script import (
        upgrade_script,
    )  # brings Alembic: half a second, once for a database

    async def run() -> None:
        found = await version(connection, layout)
        if is_step_up(found, to):
            await connection.execute(upgrade_script(layout, "postgresql", found, to))

    await _alone(connection, layout, run)


async def downgrade(connection: Connection, layout: Layout, to: str = "base") -> None:
    """Take the tables back to a version; all the way, with every row in them."""
    from keyhouse.engines.sql.script import downgrade_script

    async def run() -> None:
        found = await version(connection, layout)
        if is_step_down(found, to) and found is not None:
            await connection.execute(downgrade_script(layout, "postgresql", found, to))

    await _alone(connection, layout, run)


async def _alone(
    connection: Connection, layout: Layout, run: Callable[[], Awaitable[None]]
) -> None:
    """All or nothing, and one at a time."""
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
