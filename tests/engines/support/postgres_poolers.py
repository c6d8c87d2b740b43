"""Poolers between an engine and PostgreSQL: PgBouncer, and a small one that needs no program."""

import asyncio
import shutil
import struct
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/bin") or shutil.which("pgbouncer")

SOCKET = ".s.PGSQL.5432"
UNPRIVILEGED = 65_534
"""PgBouncer, like PostgreSQL, does not run as root."""


def url_through(folder: Path, database: str) -> str:
    return f"postgresql://postgres@/{database}?host={folder}"


@contextmanager
def pgbouncer(folder: Path, server: Path, mode: str) -> Iterator[None]:
    """Run PgBouncer with a socket in `folder`, for the server with its socket in another one."""
    assert PGBOUNCER is not None
    (folder / "users").write_text('"postgres" ""\n')
    (folder / "pgbouncer.ini").write_text(
        f"""[databases]
* = host={server} user=postgres
[pgbouncer]
listen_addr =
listen_port = 5432
unix_socket_dir = {folder}
auth_type = trust
auth_file = {folder}/users
pool_mode = {mode}
default_pool_size = 30
"""
    )
    folder.chmod(0o777)
    with subprocess.Popen(
        [PGBOUNCER, "-u", "nobody", folder / "pgbouncer.ini"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.kill()


class SharingPooler:
    """Gives all clients one server connection, a transaction at a time, as transaction mode does
    with a pool of one."""

    def __init__(self, server: Path, database: str) -> None:
        self._server = server
        self._database = database
        self._turn = asyncio.Lock()

    @asynccontextmanager
    async def running(self, folder: Path) -> AsyncIterator[None]:
        self._reader, self._writer = await asyncio.open_unix_connection(self._server / SOCKET)
        names = f"user\0postgres\0database\0{self._database}\0\0".encode()
        self._writer.write(struct.pack("!ii", len(names) + 8, 3 << 16) + names)
        self._greeting = b"".join([each async for each in self._answers() if each[:1] in b"RS"])
        server = await asyncio.start_unix_server(self._serve, folder / SOCKET)
        try:
            yield
        finally:
            server.close()
            self._writer.close()

    async def _answers(self) -> AsyncIterator[bytes]:
        """Yield the server's messages up to the one that says that it is ready."""
        answer = b""
        while answer[:1] != b"Z":
            answer = await _message(self._reader)
            yield answer
        self._idle = answer.endswith(b"I")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4)) - 4)
        ready = b"K" + struct.pack("!iii", 12, -1, 0) + b"Z" + struct.pack("!i", 5) + b"I"
        writer.write(self._greeting + ready)
        try:
            while (first := await _message(reader))[:1] != b"X":
                async with self._turn:
                    await self._transact(first, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _transact(
        self, message: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            self._writer.write(message)
            if message[:1] in b"QS":
                async for answer in self._answers():
                    writer.write(answer)
                if self._idle:
                    return
            message = await _message(reader)


async def _message(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readexactly(5)
    return head + await reader.readexactly(int.from_bytes(head[1:]) - 4)
