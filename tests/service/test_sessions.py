"""Sessions of a service: one number is the expiry of the row and the Max-Age of the cookie."""

import asyncio
import re
from typing import Any

import msgspec
import pytest

from keyhouse import Index, Record, Schema, Space, Store, at_field, per_write
from keyhouse.auth import HASHED_KEY, ID_SECRET, Caller, StoredSession, TokenForm
from keyhouse.clock import ManualClock
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import TokenError
from keyhouse.http import ClientAddress
from keyhouse.schema import SECONDS
from keyhouse.service.accounts.sessions import NewSession, SessionCookie, SessionStore

CLIENT = ClientAddress("192.0.2.1", "192.0.2.1")
COOKIE = SessionCookie(name="shop", path="/shop", same_site="Strict")
HOURS = 3.0


class Login(msgspec.Struct):
    id: str
    user: str
    secret_hash: str
    expires_at: str


class Visit(msgspec.Struct):
    id: str
    secret_hash: str
    expires: int


LOGINS_OF = Index("idx:login:{user}:{id}")
LOGIN = Record(Login, "login:{id}", LOGINS_OF, expiry=at_field("expires_at"))
VISIT = Record(Visit, "visit:{id}", expiry=per_write())
SHOP = Schema("shop", LOGIN, VISIT, space=Space("all", name="all"))


def shop() -> tuple[Store, ManualClock]:
    clock = ManualClock()
    return Store(SHOP, MemoryEngine(clock=clock), "all"), clock


def logins(store: Store, form: TokenForm = ID_SECRET) -> SessionStore[Login]:
    return SessionStore(store, LOGIN, hours=HOURS, form=form, by=LOGINS_OF)


async def log_in(
    sessions: SessionStore[Login], user: str, hours: float | None = None
) -> NewSession:
    new = sessions.new(hours)
    login = Login(new.id, user, new.secret_hash, SECONDS.format(new.expires))
    await sessions.put(new, login)
    return new


def caller_of(sessions: SessionStore[Any], new: NewSession) -> Any:
    """Send the cookie that the client got."""

    async def find(id: str) -> StoredSession | None:
        session = await sessions.get(id)
        if session is None:
            return None
        expires = getattr(session, "expires", None)
        caller = Caller(tenant="shop", subject=id)
        return StoredSession(caller=caller, secret_hash=session.secret_hash, expires=expires)

    _, cookie = COOKIE.set(new, CLIENT)
    header = (b"cookie", cookie.partition(";")[0].encode())
    return sessions.auth(find, COOKIE).authenticate([header])


@pytest.mark.parametrize("form", [ID_SECRET, HASHED_KEY])
@pytest.mark.parametrize("hours", [None, 0.5, 200.0])
def test_the_row_and_the_cookie_end_after_the_same_time(
    form: TokenForm, hours: float | None
) -> None:
    async def main() -> None:
        store, clock = shop()
        sessions = logins(store, form)
        new = await log_in(sessions, "ann", hours)
        found = re.search(r"Max-Age=(\d+)", COOKIE.set(new, CLIENT)[1])
        assert found is not None
        seconds = int(found[1])
        assert seconds == (hours or HOURS) * 3_600
        clock.advance(seconds=seconds - 1)
        assert (await caller_of(sessions, new)).subject == new.id
        clock.advance(seconds=1)
        with pytest.raises(TokenError):
            await caller_of(sessions, new)
        assert await sessions.get(new.id) is None

    asyncio.run(main())


def test_a_sliding_session_ends_after_the_time_without_use_and_its_cookie_with_the_browser() -> (
    None
):
    async def main() -> None:
        store, clock = shop()
        sessions = SessionStore(store, VISIT, hours=HOURS, sliding="expires")
        new = sessions.new()
        await sessions.put(new, Visit(new.id, new.secret_hash, new.expires))
        assert "Max-Age" not in COOKIE.set(new, CLIENT)[1]
        for _ in range(3):  # each use extends it
            clock.advance(hours=HOURS - 1)
            await caller_of(sessions, new)
        clock.advance(hours=HOURS)
        assert await sessions.get(new.id) is None

    asyncio.run(main())


def test_the_cookie_is_for_the_path_of_the_service_below_the_root() -> None:
    new = logins(shop()[0]).new()
    assert "; Path=/mall/shop; HttpOnly; SameSite=Strict" in COOKIE.set(new, CLIENT, "/mall")[1]
    assert COOKIE.delete(CLIENT, "/mall")[1].startswith("shop=; Path=/mall/shop; ")


def test_the_secret_of_a_session_is_in_no_row() -> None:
    async def main() -> None:
        store, _ = shop()
        new = await log_in(logins(store), "ann")
        rows = [row async for row in store.row_scan()]
        secret = new.token.rpartition(".")[2].encode()
        assert rows and not [row for row in rows if secret in row.key.encode() + row.value]

    asyncio.run(main())


def test_sessions_of_a_user_are_listed_and_ended_and_those_of_others_stay() -> None:
    async def main() -> None:
        store, clock = shop()
        sessions = logins(store)
        of_ann = []
        for _ in range(4):
            of_ann.append((await log_in(sessions, "ann")).id)
            clock.advance(seconds=1)
        of_bob = (await log_in(sessions, "bob")).id

        async def ids(user: str) -> list[str]:
            return [login.id for login in await sessions.of(user=user)]

        assert await ids("ann") == of_ann
        await sessions.end_oldest(3, user="ann")
        assert await ids("ann") == of_ann[1:]
        assert await sessions.end(of_ann[1]) and not await sessions.end(of_ann[1])
        await sessions.end_all(except_for=of_ann[2], user="ann")
        assert await ids("ann") == [of_ann[2]]
        await sessions.end_all(user="ann")
        assert (await ids("ann"), await ids("bob")) == ([], [of_bob])

    asyncio.run(main())


def test_a_session_that_has_ended_is_not_changed() -> None:
    async def main() -> None:
        sessions = logins(shop()[0])
        new = await log_in(sessions, "ann")
        assert await sessions.change(new.id, user="eve")
        assert [login.id for login in await sessions.of(user="eve")] == [new.id]
        await sessions.end(new.id)
        assert not await sessions.change(new.id, user="ann")

    asyncio.run(main())
