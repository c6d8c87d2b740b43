"""Health checks of a PostgreSQL server: version, durability, clock, size and connections."""

import time
from typing import Any, Final

import asyncpg

from keyhouse.engines.health import HealthCheck, clock_skew, format_size, measured
from keyhouse.engines.postgres.server import SERVER_VERSION_MIN, Server, close_quietly
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.url import split_layout

_STATE: Final = """SELECT current_setting('server_version') AS version,
    current_setting('server_version_num')::int / 10000 AS major, current_setting('fsync') AS fsync,
    current_setting('full_page_writes') AS full_page_writes,
    current_setting('synchronous_commit') AS synchronous_commit,
    extract(epoch FROM clock_timestamp())::float8 AS now,
    pg_database_size(current_database()) AS size,
    (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()) AS connections,
    current_setting('max_connections')::int AS connections_max"""


async def check_health(url: str) -> list[HealthCheck]:
    bare, layout = split_layout(url)
    server = Server(bare, layout or Layout.named("keyhouse"))
    connection = await server.reach()
    try:
        before = time.time()
        state = await server.translating(connection.fetchrow(_STATE))
        between = (before + time.time()) / 2
    finally:
        await close_quietly(connection)
    return [*_durability(state), clock_skew(state["now"] - between), *_capacity(state)]


def _durability(state: Any) -> list[HealthCheck]:
    synchronous, fsync = state["synchronous_commit"], state["fsync"]
    return [
        measured(
            "PostgreSQL",
            f"{state['version']}, through asyncpg {asyncpg.__version__}",
            f"Upgrade to PostgreSQL {SERVER_VERSION_MIN} or newer.",
            bad=state["major"] < SERVER_VERSION_MIN,
        ),
        *(
            measured(
                name,
                state[name],
                f"Acknowledged commits can be lost: set {name} = on in postgresql.conf.",
                bad=True,
            )
            for name in ("fsync", "full_page_writes")
            if state[name] != "on"
        ),
        measured(
            "durability",
            f"fsync {fsync}, synchronous_commit {synchronous}"
            if synchronous in ("on", "remote_apply")
            else f"synchronous_commit {synchronous} by default; Keyhouse sets it to on for itself",
        ),
    ]


def _capacity(state: Any) -> list[HealthCheck]:
    return [
        measured("database", format_size(state["size"])),
        measured(
            "connections",
            f"{state['connections']} of {state['connections_max']}",
            "Raise max_connections, or run fewer programs: new connections will fail.",
            warn=state["connections"] > 0.9 * state["connections_max"],
        ),
    ]
