"""Parts of a service written by hand: a raw ASGI application and one SQLite connection.

Such a service checks a token once, and commits the writes of one turn of the event loop together,
with the engine's `synchronous`. It has no limits, metrics, log, errors, expiry, isolation or change
feed.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import apsw
import jwt
import msgspec

Write = tuple[str, Sequence[Any]]
"""A statement and its values."""

UPSERT = (
    "INSERT INTO rows(space, key, value, revision) VALUES(?, ?, ?, ?) "
    "ON CONFLICT(space, key) DO UPDATE SET value=excluded.value, revision=excluded.revision"
)
DELETE = "DELETE FROM rows WHERE space = ? AND key = ?"
GET = "SELECT value FROM rows WHERE space = ? AND key = ?"
_LOG = "INSERT INTO log(space, revision, key) VALUES(?, ?, ?)"


class Rows:
    """A table of rows with a log of changes, and grouped commits."""

    def __init__(self, path: Path) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.pragma("journal_mode", "wal")
        self.connection.pragma("synchronous", 2)
        self.connection.execute(
            "CREATE TABLE rows(space TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, "
            "revision INTEGER NOT NULL, PRIMARY KEY(space, key)) WITHOUT ROWID;"
            "CREATE TABLE log(space TEXT NOT NULL, revision INTEGER NOT NULL, key TEXT NOT NULL, "
            "PRIMARY KEY(space, revision, key)) WITHOUT ROWID"
        )
        self.revision = 0
        self._waiting: list[tuple[list[Write], asyncio.Future[None]]] = []

    def get(self, space: str, key: str) -> bytes | None:
        value: bytes | None = self.connection.execute(GET, (space, key)).get
        return value

    def commit(self, space: str, writes: list[Write], keys: Sequence[str]) -> asyncio.Future[None]:
        """Return a future that is done when the writes, and a log entry for each key, are on
        disk."""
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_soon(self._flush)
        done: asyncio.Future[None] = loop.create_future()
        self.revision += 1
        logged: list[Write] = [(_LOG, (space, self.revision, key)) for key in keys]
        self._waiting.append((writes + logged, done))
        return done

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for writes, _ in waiting:
            for statement, values in writes:
                execute(statement, values)
        execute("COMMIT")
        for _, done in waiting:
            done.set_result(None)


class Tokens:
    """Checks each token once."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._known: dict[bytes, Any] = {}

    def trust(self, headers: list[tuple[bytes, bytes]]) -> None:
        """Look up a token as a known one is looked up, without its secret."""
        self._known.get(_token(headers))

    def check(self, headers: list[tuple[bytes, bytes]]) -> Any:
        value = _token(headers)
        claims = self._known.get(value)
        if claims is None:
            text = value.removeprefix(b"Bearer ")
            options: Any = {"verify_aud": False}
            claims = jwt.decode(text, self._secret, algorithms=["HS256"], options=options)
            self._known[value] = claims
        return claims


def _token(headers: list[tuple[bytes, bytes]]) -> bytes:
    return next(value for name, value in headers if name == b"authorization")


async def body_of(receive: Any) -> bytes:
    message = await receive()
    body: bytes = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    return body


async def respond(send: Any, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


encode: Callable[[object], bytes] = msgspec.json.encode
