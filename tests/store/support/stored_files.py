"""Open the stored files of version 0.1, which `tests/fixtures/stored_0_1/make.py` wrote.

Each loader restores what an engine had stored, and yields the engine that this version opens on it.
"""

import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Final
from zipfile import ZipFile

import asyncpg
import msgspec
import nats

from keyhouse import open_engine
from keyhouse.clock import Clock
from keyhouse.engine import Engine
from keyhouse.engines.dynamodb.layout import layout_of
from keyhouse.settings.engine_urls import url_of
from keyhouse.testing.servers.postgres import postgres_server
from tests.support import dynamodb_tables
from tests.support.engine_openers import OPENERS
from tests.support.nats_servers import REPLY_SECONDS, own_server

FOLDER: Final = Path(__file__).parents[2] / "fixtures" / "stored_0_1"
FILES: Final = sorted(
    path.stem for path in FOLDER.glob("*-*.zip") if path.stem.partition("-")[0] in OPENERS
)
"""Of the engines that are tested."""


class StoredSpace(msgspec.Struct, frozen=True):
    """A space as it was left: a batch with an id was its last commit, after the one `before`."""

    schema: str
    before: int
    revision: int


class Facts(msgspec.Struct, frozen=True):
    """`at` is the time, in milliseconds, at which the old version exported its rows."""

    at: int
    spaces: dict[str, StoredSpace]


class StoredFile:
    """One file, unpacked into `folder`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.engine, self.keyspace = name.split("-", 1)
        with ZipFile(FOLDER / f"{name}.zip") as file:
            file.extractall(folder)
        self.stored = folder / "stored"
        self.facts = msgspec.json.decode((folder / "facts.json").read_bytes(), type=Facts)
        self.exported = (folder / "rows.jsonl").read_bytes()

    def opened(self, clock: Clock) -> AbstractAsyncContextManager[Engine]:
        return LOADERS[self.engine](self.stored, self.keyspace, clock)

    def rows(self, space: str) -> dict[str, Any]:
        """Return the values of a space, as the old version exported them."""
        lines = [json.loads(line) for line in self.exported.splitlines()[:-1]]
        return {line["key"]: line["value"] for line in lines if line["space"] == space}


def own_url(keyspace: str, url: str) -> str:
    """Return the URL of a system's own tables or buckets."""
    system = keyspace.partition("-")[0]
    return url if system == "general" else url_of(system, url, alone=True)


@asynccontextmanager
async def sqlite(stored: Path, keyspace: str, clock: Clock) -> AsyncIterator[Engine]:
    url = own_url(keyspace, f"sqlite:{stored / 'rows.db'}")
    async with open_engine(url, clock=clock, create=False) as engine:
        yield engine


@asynccontextmanager
async def rocksdb(stored: Path, keyspace: str, clock: Clock) -> AsyncIterator[Engine]:
    async with open_engine(f"rocksdb:{stored / 'rows'}", clock=clock, create=False) as engine:
        yield engine


@asynccontextmanager
async def postgres(stored: Path, keyspace: str, clock: Clock) -> AsyncIterator[Engine]:
    """Run the statements of the dump in a new database."""
    server, name = postgres_server(), f"stored_{keyspace}"
    await execute(server.url, f"DROP DATABASE IF EXISTS {name}")
    await execute(server.url, f"CREATE DATABASE {name}")
    url = server.url.replace("@/postgres?", f"@/{name}?")
    await execute(url, (stored / "dump.sql").read_text())
    async with open_engine(own_url(keyspace, url), clock=clock, create=False) as engine:
        yield engine


async def execute(url: str, statements: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(statements)
    await connection.close()


@asynccontextmanager
async def jetstream(stored: Path, keyspace: str, clock: Clock) -> AsyncIterator[Engine]:
    with own_server(stored / "server") as server:
        client = await nats.connect(server.url)
        for path in sorted(stored.glob("*.jsonl")):
            await fill_stream(
                client, [json.loads(line) for line in path.read_text().split("\n")[:-1]]
            )
        await client.close()
        name = {"general": "&bucket=general", "buckets": "&prefix=t-"}.get(keyspace, "")
        url = f"{server.url}/?sync=always{name}"
        if not name:
            url = own_url(keyspace, url)
        async with open_engine(url, clock=clock, create=False) as engine:
            yield engine


async def fill_stream(client: Any, lines: list[dict[str, Any]]) -> None:
    """Create a stream and its messages at their sequences. A message that had been replaced is one
    on a subject that is purged in the end."""
    config, *messages = lines
    name = config["name"]
    filler = config["subjects"][-1].replace(">", "filler")

    async def api(subject: str, **body: object) -> None:
        reply = await client.request(f"$JS.API.{subject}", json.dumps(body).encode(), REPLY_SECONDS)
        assert "error" not in json.loads(reply.data), reply.data

    async def publish(subject: str, data: str, headers: dict[str, str]) -> int:
        reply = await client.request(subject, data.encode(), REPLY_SECONDS, headers=headers)
        sequence: int = json.loads(reply.data)["seq"]
        return sequence

    await api(f"STREAM.CREATE.{name}", **config)
    sequence = 0
    for message in messages:
        while sequence < message["seq"] - 1:
            sequence = await publish(filler, "", {})
        pairs = [line.split(": ", 1) for line in message["hdrs"].splitlines()[1:] if line]
        headers = {key: value for key, value in pairs if not key.startswith(CONDITIONS)}
        sequence = await publish(message["subject"], message["data"], headers)
        assert sequence == message["seq"]
    await api(f"STREAM.PURGE.{name}", filter=filler)


CONDITIONS: Final = ("Nats-Expected-", "Nats-Batch-")
"""Headers that the server applies when a message is published, and stores with it."""


@asynccontextmanager
async def dynamodb(stored: Path, keyspace: str, clock: Clock) -> AsyncIterator[Engine]:
    settings = dynamodb_tables.settings(layout=layout_of(keyspace), create=False)
    async with dynamodb_tables.plain_client() as client:
        for name, table in (("rows", settings.table), ("log", f"{settings.table}.log")):
            content = json.loads((stored / f"{name}.json").read_text())
            await client.create_table(TableName=table, **content["table"])
            puts = [{"PutRequest": {"Item": item}} for item in content["items"]]
            for start in range(0, len(puts), 25):
                await client.batch_write_item(RequestItems={table: puts[start : start + 25]})
    async with dynamodb_tables.opened(settings, clock=clock) as engine:
        yield engine


LOADERS: Final = {
    loader.__name__: loader for loader in (sqlite, rocksdb, postgres, jetstream, dynamodb)
}
