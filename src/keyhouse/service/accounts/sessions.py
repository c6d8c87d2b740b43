"""Sessions as records of a service, and the cookie that carries their token.

A service declares the record and one setting, the hours of a session. From that number follow the
expiry of the row and the `Max-Age` of the cookie:

    lifetime     the row expires                     the cookie
    ----------   ---------------------------------   ------------------------------------------
    fixed        so many hours after the sign-in     has the same Max-Age
    sliding      so many hours after the last use    has none: it lasts until the browser closes

The secret is stored as a hash (`keyhouse.auth.session_auth`). Nothing about a session is kept in
memory: a row that was deleted, by whichever process, ends the session at the next request.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec

from keyhouse.auth import (
    HASHED_KEY,
    ID_SECRET,
    Caller,
    SessionAuth,
    StoredSession,
    TokenForm,
    new_token,
)
from keyhouse.errors import NotFoundError
from keyhouse.http import ClientAddress, delete_cookie, set_cookie
from keyhouse.schema import Index, Record
from keyhouse.store import Store, Transaction

__all__ = ["NewSession", "SessionCookie", "SessionStore"]

SESSIONS_PAGE: Final = 100
"""Sessions of a page of all sessions."""

T = TypeVar("T")


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session to be stored: the record has `id`, `secret_hash` if tokens name an id, and the
    times, in milliseconds since 1970. The client gets `token`, in a cookie for
    `max_age_seconds`."""

    id: str
    token: str
    secret_hash: str
    created: int
    expires: int
    max_age_seconds: int | None


class SessionCookie(msgspec.Struct, frozen=True, kw_only=True):
    """The cookie of a service's sessions. `path` is below the path that the app is mounted at."""

    name: str
    path: str = "/"
    same_site: Literal["Lax", "Strict"] = "Lax"

    def set(self, session: NewSession, client: ClientAddress, root: str = "") -> tuple[str, str]:
        """Return the header that signs a browser in."""
        return set_cookie(
            self.name,
            session.token,
            client,
            path=f"{root}{self.path}",
            max_age_seconds=session.max_age_seconds,
            same_site=self.same_site,
        )

    def delete(self, client: ClientAddress, root: str = "") -> tuple[str, str]:
        """Return the header that signs a browser out."""
        return delete_cookie(self.name, client, path=f"{root}{self.path}")


class SessionStore(Generic[T]):
    """The sessions of a service.

    `id_field` is the field of the record's key. `form` is that of tokens; `token_prefix` is in
    front of the id in them. `by` is the index of a user's sessions, whose last field is the id.
    `sliding` is the member with the expiry, in milliseconds, if a session in use is extended; such
    a record is declared with `per_write()`.
    """

    def __init__(
        self,
        store: Store,
        record: Record[T],
        *,
        hours: float,
        id_field: str = "id",
        form: TokenForm = ID_SECRET,
        token_prefix: str = "",
        by: Index | None = None,
        sliding: str = "",
    ) -> None:
        self.store = store
        self._record = record
        self._hours = hours
        self._id_field = id_field
        self._form = form
        self._token_prefix = token_prefix
        self._by = by
        self._sliding = sliding
        self._clock = store.engine.clock

    def auth(
        self,
        find: Callable[[str], Awaitable[StoredSession | None]],
        cookie: SessionCookie,
        *,
        bearer: bool = False,
        role_scopes: Mapping[str, Collection[str]] | None = None,
        anonymous: Caller | None = None,
    ) -> SessionAuth:
        """Return the authenticator of these sessions. `find` returns one with its user, and
        `anonymous` is the caller of a request without one."""
        return SessionAuth(
            find,
            cookie=cookie.name,
            bearer=bearer,
            form=self._form,
            role_scopes=role_scopes,
            anonymous=anonymous,
            sliding_seconds=self._hours * 3_600 if self._sliding else None,
            renew=self.renew if self._sliding else None,
            clock=self._clock,
        )

    # Issue

    def new(self, hours: float | None = None) -> NewSession:
        """Return a session that starts now, for the hours of the settings or others."""
        seconds = (self._hours if hours is None else hours) * 3_600
        now = self._clock.now()
        id = "" if self._form == HASHED_KEY else self.store.ids.new()
        token = new_token(f"{self._token_prefix}{id}" if id else None)
        return NewSession(
            id=id or token.id,
            token=token.token,
            secret_hash=token.secret_hash,
            created=now,
            expires=now + round(seconds * 1_000),
            max_age_seconds=None if self._sliding else round(seconds),
        )

    async def put(self, new: NewSession, session: T, tx: Transaction | None = None) -> None:
        """Store the record of a new session, in a transaction if it is given."""
        ttl = self._ttl(new.expires) if self._sliding else None
        await (tx or self.store).put(self._record, session, ttl=ttl, **self._key(new.id))

    # Find

    async def get(self, id: str) -> T | None:
        """Return a session that has not ended."""
        return await self.store.get(self._record, **self._key(id))

    async def page(self, cursor: str = "") -> tuple[list[T], str]:
        """Return sessions of all users, the newest first, and the cursor of the next page."""
        page = await self.store.page(
            self._record, limit=SESSIONS_PAGE, cursor=cursor or None, reverse=True
        )
        return [entry.record for entry in page.entries], page.cursor or ""

    async def of(self, **user: Any) -> list[T]:
        """Return the sessions of a user, which the first field of the index names."""
        return [entry.record async for entry in self.store.scan(self._record, by=self._by, **user)]

    # Change and end

    async def change(self, id: str, **members: Any) -> bool:
        """Change members of a session; return whether it was there: one that was ended meanwhile
        does not come back."""
        ttl = self._ttl(members[self._sliding]) if self._sliding in members else None
        try:
            await self.store.update(self._record, members, ttl=ttl, **self._key(id))
        except NotFoundError:
            return False
        return True

    async def renew(self, id: str, expires: int) -> None:
        await self.change(id, **{self._sliding: expires})

    async def end(self, id: str) -> bool:
        """End a session; return whether it was there."""
        return await self.store.delete(self._record, **self._key(id))

    async def end_all(self, *, except_for: str = "", **user: Any) -> None:
        """End the sessions of a user, or all but one."""
        for id in await self._ids(user):
            if id != except_for:
                await self.end(id)

    async def end_oldest(self, kept: int, **user: Any) -> None:
        """End the sessions of a user beyond a number. Call it after the commit of a sign-in, so
        that of several at once, the last one sees the sessions of all."""
        for id in (await self._ids(user))[:-kept]:
            await self.end(id)

    async def _ids(self, user: Mapping[str, Any]) -> list[str]:
        """Return the ids of a user's sessions, the oldest first."""
        assert self._by is not None
        template = self.store.binding.derived(self._by).template
        ids: list[str] = []
        cursor: str | None = None
        while True:
            keys, cursor = await self.store.keys(self._by, cursor=cursor, **user)
            for key in keys:
                row = template.parse(key)
                assert row is not None  # it was found by this template
                ids.append(str(row[self._id_field]))
            if cursor is None:
                return ids

    def _key(self, id: str) -> dict[str, Any]:
        return {self._id_field: id}

    def _ttl(self, expires: int) -> int:
        return max(1, (expires - self._clock.now()) // 1_000)
