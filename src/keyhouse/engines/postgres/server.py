"""Opens connections to the server, configured and checked, with the tables in place. Knows no rows.

A connection is rejected, with the remedy, when the engine could not keep its promises on it: the
server is another product, does not sync its disk, is too old or does not use UTF-8, or the tables
have another version.

Connections hold session settings, prepared statements and, for watches, LISTEN. So behind a pooler
such as PgBouncer each connection needs a separate server connection (session mode). A pooler is
recognized by the process id of the connection, which it invents. Then a second connection shows
whether the pooler shares server connections: a setting must stay in its connection, and not appear
in the other.
"""

import secrets
from collections.abc import Awaitable
from functools import partial
from typing import Final, TypeVar
from urllib.parse import urlsplit

import asyncpg

from keyhouse.engines.postgres.connection import Connection
from keyhouse.engines.postgres.error_map import DRIVER, translate
from keyhouse.engines.postgres.tables import migrate, version
from keyhouse.engines.sql.layout import Layout
from keyhouse.engines.sql.postgres import check_names
from keyhouse.engines.sql.script import Plan, upgrade_script
from keyhouse.engines.sql.url import split_parameter
from keyhouse.engines.sql.version import check_version
from keyhouse.engines.url import public_url
from keyhouse.errors import KeyhouseError, UsageError

CONNECT_SECONDS: Final = 10.0
"""Timeout of opening a connection."""

CALL_SECONDS: Final = 30.0
"""Timeout of a statement; after it, the connection counts as lost."""

CLOSE_SECONDS: Final = 2.0
"""Timeout of closing a connection."""

CONNECTIONS_DEFAULT: Final = 12
"""Connections of a process to one server, whatever its number of engines: as many as one engine
uses with all its workers busy, and one that listens."""

CONNECTIONS_MIN: Final = 3
"""One for reads, one for writes, one that listens."""

CONNECTIONS_MAX: Final = 1_000

PROBE_SECONDS: Final = 2.0
"""Timeout of a second connection through a pooler: one that is full makes it wait."""

STATEMENTS_CACHED: Final = 500
"""Prepared statements of a connection: it serves several engines, each with some 30."""

SERVER_VERSION_MIN: Final = 14
"""The oldest version that was maintained when this was written; tests run on the newest."""

SETTINGS: Final = {
    "application_name": "keyhouse",
    # Each statement must see everything committed before it: the functions rely on it.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "lock_timeout": "10s",
    # Every statement uses an index, even if its plan was cached while the table was small.
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    # Parallel branches of a UNION ALL would not keep their order.
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
}

_SET: Final = "; ".join(f"SET {name} = '{value}'" for name, value in SETTINGS.items())

# Sent without prepared statements, which a pooler may lose: the status counts the rows.
_IS_POSTGRESQL: Final = "SELECT 1 WHERE version() ~ '^PostgreSQL [0-9.]+[a-z0-9]*([ ,]|$)'"
_IS_DIRECT: Final = _IS_POSTGRESQL + " AND pg_backend_pid() = {pid}"
_MARK: Final = "SET keyhouse.session = '{mark}'"
_HAS_MARK: Final = "SELECT 1 WHERE current_setting('keyhouse.session', true) = '{mark}'"

_STATE = """SELECT current_setting('server_version_num')::int / 10000 AS version,
    current_setting('server_encoding') AS encoding, current_setting('fsync') AS fsync,
    current_setting('synchronous_commit') AS synchronous_commit"""

Result = TypeVar("Result")


class Server:
    """A server, and the tables of one engine on it.

    `name` is the address without credentials, for errors; `connections` is the number that a
    process opens, `connections=` in the URL.
    """

    def __init__(self, url: str, layout: Layout, *, create: bool = True) -> None:
        check_names(layout)
        self.url, self.connections = _split_connections(url)
        self.tables = layout.version
        self._keeps_sessions = False
        self._layout = layout
        self._create = create
        self.name = _name(url)

    async def connect(self) -> Connection:
        """Open a configured connection; creates the tables in a database without them."""
        connection = await self.reach()
        try:
            await self.translating(self._check(connection))
            await self.prepare(connection)
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def prepare(self, connection: Connection) -> None:
        """Check the tables, and create them in a database without them."""
        await self.translating(self._check_tables(connection))

    async def reach(self) -> Connection:
        """Open a configured connection without looking at the tables."""
        connection = await self._open(CONNECT_SECONDS)
        try:
            await self.translating(self._check_product(connection))
            await self.translating(connection.execute(_SET))
        except BaseException:
            connection.terminate()
            raise
        return connection

    async def _open(self, seconds: float) -> Connection:
        try:
            if "@" in urlsplit(self.url).path:
                # The driver would take a part of the password for the host.
                raise ValueError("the password contains a slash")
            opened: Connection = await self.translating(
                asyncpg.connect(
                    self.url,
                    timeout=seconds,
                    command_timeout=CALL_SECONDS,
                    statement_cache_size=STATEMENTS_CACHED,
                    max_cached_statement_lifetime=0,
                )
            )
        except (ValueError, OverflowError):  # an invalid URL; a port out of range
            raise UsageError(
                "Invalid PostgreSQL URL; write postgresql://user:password@host:port/database",
                url=public_url(self.url),
            ) from None  # the cause may quote a part of the password
        return opened

    async def _check_product(self, connection: Connection) -> None:
        """Reject servers that only resemble PostgreSQL, and poolers that share connections."""
        if await _holds(connection, _IS_DIRECT.format(pid=connection.get_server_pid())):
            return
        if not await _holds(connection, _IS_POSTGRESQL):
            raise UsageError(
                "The server is not PostgreSQL but a product that speaks its protocol: its advisory"
                " locks may do nothing, and commits could be lost; use PostgreSQL.",
                server=self.name,
                version=await connection.fetchval("SELECT version()"),
            )
        if not self._keeps_sessions:
            await self._check_pooler(connection)
            self._keeps_sessions = True

    async def _check_pooler(self, connection: Connection) -> None:
        mark = secrets.token_hex(8)
        try:
            other = await self._open(PROBE_SECONDS)
        except KeyhouseError:  # each connection has its own, and the pooler has no more
            return
        try:
            await connection.execute(_MARK.format(mark=mark))
            if not await _holds(other, _HAS_MARK.format(mark=mark)) and await _holds(
                connection, _HAS_MARK.format(mark=mark)
            ):
                return
        finally:
            await close_quietly(other)
        raise UsageError(
            "A pooler between here and the server shares server connections (transaction mode), so"
            " session settings and LISTEN are lost; set pool_mode = session, or connect directly.",
            server=self.name,
        )

    async def migrate(self, plan: Plan) -> str | None:
        """Run the SQL of a plan on the tables; return the version found."""
        connection = await self.reach()
        try:
            return await self.translating(migrate(connection, self._layout, plan))
        finally:
            await close_quietly(connection)

    async def translating(self, call: Awaitable[Result]) -> Result:
        """Await the call and translate the driver's errors."""
        try:
            return await call
        except DRIVER as error:
            if isinstance(error, ValueError):
                raise
            raise translate(error, self.name) from error

    async def _check(self, connection: Connection) -> None:
        state = await connection.fetchrow(_STATE)
        if state["version"] < SERVER_VERSION_MIN:
            raise UsageError(
                "The server is too old.",
                server=self.name,
                version=state["version"],
                needed=SERVER_VERSION_MIN,
            )
        if state["encoding"] != "UTF8":
            raise UsageError(
                "The database's encoding is not UTF-8; create one with ENCODING 'UTF8'.",
                server=self.name,
                encoding=state["encoding"],
            )
        if state["fsync"] != "on":
            raise UsageError(
                "The server does not sync its disk: commits can be lost; set fsync = on.",
                server=self.name,
            )
        if state["synchronous_commit"] not in ("on", "remote_apply"):
            await connection.execute("SET synchronous_commit = on")

    async def _check_tables(self, connection: Connection) -> None:
        tables_version = await version(connection, self._layout)
        if tables_version is None and not self._create:
            raise UsageError(
                "The tables do not exist; create them with: keyhouse tables upgrade URL",
                server=self.name,
                tables=self._layout.rows,
            )
        if tables_version is None:
            await migrate(
                connection, self._layout, partial(upgrade_script, self._layout, "postgresql")
            )
            tables_version = await version(connection, self._layout)
        check_version(tables_version, server=self.name)


async def _holds(connection: Connection, query: str) -> bool:
    return await connection.execute(query) == "SELECT 1"


def _split_connections(url: str) -> tuple[str, int]:
    """Return the URL without `connections=`, and its number."""
    bare, numbers = split_parameter(url, "connections")
    if not numbers:
        return url, CONNECTIONS_DEFAULT
    text = numbers[0]
    if len(numbers) > 1 or not (
        text.isascii() and text.isdigit() and CONNECTIONS_MIN <= int(text[:9]) <= CONNECTIONS_MAX
    ):
        raise UsageError(
            "Invalid number of connections in the URL; write connections=NUMBER, 3 to 1000.",
            connections=numbers,
        )
    return bare, int(text)


def _name(url: str) -> str:
    host, slash, database = public_url(url).partition("//")[2].partition("?")[0].partition("/")
    return f"{host or 'localhost'}{slash}{database}"


async def close_quietly(connection: Connection) -> None:
    """Close the connection, or terminate it if the server does not respond."""
    try:
        await connection.close(timeout=CLOSE_SECONDS)
    except DRIVER:
        connection.terminate()
