"""A `keyhouse serve` process to attack, with its memory use and its addresses."""

import asyncio
import json
import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import jwt

from keyhouse import open_store
from keyhouse.nats.embedded_users import BUCKETS_USER, with_embedded_user
from keyhouse_audiobooks.schema import ARGON2_PARAMS, SCHEMAS
from systems.audiobooks.tests.support.service import CHEAP
from tests.serve.support.serve_process import environment
from tests.support.program import PipedProcess

SYSTEMS = ("rosey", "streamkit")
SECRET = "abuse-tests-0123456789-abcdefghijklmnopqrstuvwxyz"


class ServerProcess:
    """`with ServerProcess(folder, rosey={...}) as server: ...`, with tables as in keyhouse.toml."""

    def __init__(self, folder: Path, *systems: str, **tables: dict[str, Any]) -> None:
        self.folder = folder
        self._systems = systems or SYSTEMS
        self._tables: dict[str, dict[str, Any]] = {"streamkit": {"jwt_secret": SECRET}}
        for name, table in tables.items():
            self._tables.setdefault(name, {}).update(table)
        self._process: PipedProcess | None = None
        self.http = self.nats = ""
        self._routes_path = folder / "routes.jsonl"

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "keyhouse.toml"
        config.write_text(_toml(self._tables))
        self.log = self.folder / "serve.log"
        arguments = [
            *(str(self._routes_path), "serve", *self._systems),
            *("--data", str(self.folder / "data"), "--config", str(config)),
            *("--http", "127.0.0.1:0", "--nats-port", "0", "--json"),
        ]
        with self.log.open("wb") as log:
            self._process = PipedProcess(
                "tests.abuse.support.listing_server",
                *arguments,
                environment=environment(),
                errors=log.fileno(),
            )
        line = self._process.stdout.readline()
        assert line, f"the server did not start: {self.log.read_text()[-2000:]}"
        ready = json.loads(line)
        self.http, self.nats = ready["http"], ready["nats"]
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(30)
        self._process.close()

    @property
    def routes(self) -> list[dict[str, Any]]:
        """The routing table: see `listing_server`."""
        return [json.loads(line) for line in self._routes_path.read_text().splitlines()]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.http)
        assert parts.hostname is not None and parts.port is not None
        return parts.hostname, parts.port

    def nats_of(self, service: str) -> str:
        """Return the address for a client of a service: the commands of playlist need a user."""
        if service != "playlist":
            return self.nats
        return with_embedded_user(self.nats, self.folder / "data", BUCKETS_USER)

    def nats_sign_in(self, subject: str) -> bytes:
        """Return the first line of a raw connection that publishes to this subject."""
        url = urlsplit(self.nats_of("playlist" if subject.startswith("kryten.") else ""))
        user = {"user": url.username, "pass": url.password} if url.username else {}
        return b"CONNECT " + json.dumps({"verbose": False, **user}).encode() + b"\r\n"

    @property
    def nats_address(self) -> tuple[str, int]:
        parts = urlsplit(self.nats)
        assert parts.hostname is not None and parts.port is not None
        return parts.hostname, parts.port

    @property
    def rss_bytes(self) -> int:
        with open(f"/proc/{self.pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def token(self, customer: str) -> str:
        claims = {"customerId": customer, "profileId": customer, "exp": int(time.time()) + 3_600}
        return jwt.encode(claims, SECRET, algorithm="HS256")

    def operator_token(self, scopes: str) -> str:
        """Return a token for the Studio, if its table has `jwt_secret` SECRET."""
        claims = {"sub": "mallory", "scope": scopes, "exp": int(time.time()) + 3_600}
        return jwt.encode(claims, SECRET, algorithm="HS256")


def store_cheap_passwords(folder: Path) -> None:
    """Have audiobooks hash passwords at the lowest cost; before a server of this folder starts."""
    data = folder / "data"
    data.mkdir(mode=0o700)

    async def put() -> None:
        async with open_store(
            SCHEMAS[0], f"sqlite:{data / 'audiobooks.db'}?layout=audiobooks", "main"
        ) as store:
            await store.put(ARGON2_PARAMS, CHEAP)

    asyncio.run(put())


def _toml(tables: dict[str, dict[str, Any]]) -> str:
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in table.items())
        for name, table in tables.items()
    )
