"""Sessions of Starlette and FastAPI on a store, through the library starsessions.

    app.add_middleware(SessionMiddleware, store=KeyhouseSessionStore(store), lifetime=3600)

Keys hold the SHA-256 of a session id, so a copy of the store lets nobody take over a session.
"""

import hashlib
from typing import Final

from msgspec import Struct
from starsessions.stores.base import SessionStore

from keyhouse.schema import Meta, Record, Schema, Space, per_write
from keyhouse.store import Store

__all__ = ["SESSIONS", "KeyhouseSessionStore"]

_BROWSER_SESSION_SECONDS: Final = 30 * 24 * 3_600
"""Expiry of a session whose cookie lasts until the browser is closed."""


class SessionData(Struct, kw_only=True):
    """The data of one session, as the middleware serialized it."""

    digest: str
    data: bytes


SESSION: Final = Record(SessionData, "session:{digest}", name="session", expiry=per_write())
SESSIONS: Final = Schema("sessions", SESSION, meta=Meta(), space=Space("a site"))


class KeyhouseSessionStore(SessionStore):
    """A starsessions store on a store of the schema `SESSIONS`."""

    def __init__(self, store: Store) -> None:
        self.store = store

    async def read(self, session_id: str, lifetime: int) -> bytes:
        session = await self.store.get(SESSION, digest=_digest(session_id))
        return b"" if session is None else session.data

    async def write(self, session_id: str, data: bytes, lifetime: int, ttl: int) -> str:
        seconds = _BROWSER_SESSION_SECONDS if lifetime == 0 else max(1, ttl)
        await self.store.put(
            SESSION, SessionData(digest=_digest(session_id), data=data), ttl=seconds
        )
        return session_id

    async def remove(self, session_id: str) -> None:
        await self.store.delete(SESSION, digest=_digest(session_id))


def _digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode(errors="surrogatepass")).hexdigest()
