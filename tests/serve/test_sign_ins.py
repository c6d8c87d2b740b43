"""Nobody locks out somebody else: for every way to sign in, 20 failures from other addresses, and
then the right one succeeds. So it does after a flood of every request that anybody may send.

`WAYS` has every form or request that signs in, and every kind of credential that a request may
carry. The first test compares it with the routing tables and authenticators of all services, so
that a new one fails until it is here.
"""

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, get_type_hints

import httpx
import pytest
from prometheus_client import CollectorRegistry

from keyhouse import Store
from keyhouse.auth import mint
from keyhouse.engines.memory import MemoryEngine
from keyhouse.http import App, Route, make_app
from keyhouse.service.accounts.login_guard import LoginGuard
from keyhouse.service.host import ServiceHost
from keyhouse.service.registry import has_service, load_service, system_names
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.studio import (
    SCOPES,
    Studio,
    StudioSettings,
    SystemCatalog,
)
from keyhouse.studio.settings import studio_service
from keyhouse_audiobooks.schema import ARGON2_PARAMS, SCHEMAS
from keyhouse_playlist.accounts.delivery import Delivery
from systems.audiobooks.tests.support.service import CHEAP
from tests.service.schema_service.support.recipes import BOX

SECRET = "0123456789abcdef0123456789abcdef0123456789"
PASSWORD = "correct horse battery"
NAME = "Ada"
OWN_ADDRESS = "127.0.0.1"
FAILURES: Final = 20
NETWORKS, REQUESTS_PER_NETWORK = 8, 8
"""A flood: more than the 60 codes of a name for unknown clients, and than the 15 wrong
passwords of an address."""
STUDIO, OWN_SCHEMA = "studio", BOX.name
SYSTEMS = [*filter(has_service, system_names()), STUDIO, OWN_SCHEMA]
NOT_SIGN_INS = {
    ("audiobooks", "POST /api/v1/auth/setup"): "creates the first user, once",
    ("audiobooks", "POST /setup"): "creates the first user, once",
    ("playlist", "POST /api/v1/auth/otp/request"): "part of the way of its code",
    ("playlist", "POST /login"): "part of the way of its code",
    ("playlist", "POST /login/block"): "blocks one's own address",
    ("playlist", "POST /api/v1/auth/ipblock"): "blocks one's own address",
}
"""Routes that anybody may write to, and why they are not ways to sign in."""
ALSO_OPEN = {("playlist", "/api/v1/auth/ipblock")}
"""Routes that know their caller, and do without."""


class Running(NamedTuple):
    """A service in this process, and the codes that it has sent."""

    system: str
    spec: ServiceSpec
    app: App
    studio: Studio | None
    codes: dict[str, str]

    def client(self, address: str = OWN_ADDRESS) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(self.app, client=(address, 4711))
        return httpx.AsyncClient(
            transport=transport, base_url=f"http://localhost/{self.system}", timeout=60
        )


Attempt = Callable[[Running, httpx.AsyncClient, Any, bool], Awaitable[bool]]
"""Signs in with the right or with a wrong credential, and returns whether that succeeded. The third
argument is what `prepare` has returned."""


class Way(NamedTuple):
    """`is_single`: what `prepare` returns signs in once."""

    attempt: Attempt
    prepare: Callable[[Running], Awaitable[Any]] | None = None
    is_single: bool = False

    async def prepared(self, served: Running) -> Any:
        return None if self.prepare is None else await self.prepare(served)


@asynccontextmanager
async def running(system: str, folder: Path) -> AsyncIterator[Running]:
    engine = MemoryEngine()
    codes: dict[str, str] = {}
    send = Delivery.__call__

    async def record(self: Delivery, username: str, code: str) -> None:
        codes[username] = code

    async with ServiceHost() as host:
        studio = None
        if system == STUDIO:
            settings = StudioSettings(jwt_secret=SECRET)
            studio = Studio(SystemCatalog([]), engine, folder, settings)
            spec = studio.spec()
        else:
            given: dict[str, Any] = {"admins": [NAME]} if system == "playlist" else {}
            if "jwt_secret" in service_of(system).settings.__struct_fields__:
                given["jwt_secret"] = SECRET
            if system == "audiobooks":
                await Store(SCHEMAS[0], engine, "main").put(ARGON2_PARAMS, CHEAP)
            context = ServiceContext(
                engine=engine,
                data=folder,
                metrics=CollectorRegistry(),
                settings=given,
                host=host,
            )
            built = service_of(system)(context)
            spec = await built if inspect.isawaitable(built) else built
        Delivery.__call__ = record  # type: ignore[method-assign]
        try:
            yield Running(system, spec, make_app([spec]), studio, codes)
        finally:
            Delivery.__call__ = send  # type: ignore[method-assign]
            await engine.close()


def service_of(system: str) -> Service:
    if system == STUDIO:
        return studio_service()
    return schema_service(BOX) if system == OWN_SCHEMA else load_service(system)


# Ways


async def studio_token(
    served: Running, client: httpx.AsyncClient, prepared: Any, right: bool
) -> bool:
    token = mint(StudioSettings(jwt_secret=SECRET), Path(), "ann", scopes=SCOPES)
    answer = await client.post("/login", data={"token": token if right else token + "x"})
    return answer.status_code == 303


async def studio_link(served: Running, client: httpx.AsyncClient, link: Any, right: bool) -> bool:
    answer = await client.post("/login", data={"token": link if right else "x"})
    return answer.status_code == 303


async def new_link(served: Running) -> str:
    assert served.studio is not None
    return await served.studio.sessions.new_link()


async def session_of_studio(served: Running) -> str:
    async with served.client() as client:
        assert await studio_token(served, client, None, True)
        return next(iter(client.cookies.values()))


async def studio_session(
    served: Running, client: httpx.AsyncClient, session: Any, right: bool
) -> bool:
    headers = {"Cookie": f"keyhouse_studio={session if right else session[:-1]}"}
    return (await client.get("/index.json", headers=headers)).status_code == 200


async def jwt(served: Running, client: httpx.AsyncClient, prepared: Any, right: bool) -> bool:
    return await bearer(served, client, own_token(served), right)


async def jwt_cookie(
    served: Running, client: httpx.AsyncClient, prepared: Any, right: bool
) -> bool:
    token = own_token(served)
    headers = {"Cookie": f"auth_token={token if right else token + 'x'}"}
    return (await client.get(probe(served), headers=headers)).status_code != 401


async def bearer(served: Running, client: httpx.AsyncClient, token: Any, right: bool) -> bool:
    headers = {"Authorization": f"Bearer {token if right else token[:-1]}"}
    return (await client.get(probe(served), headers=headers)).status_code not in (401, 429)


def own_token(served: Running) -> str:
    service = service_of(served.system)
    scopes = service.scopes or service.operator_scopes or None
    settings: Any = service.settings(jwt_secret=SECRET)
    return mint(settings, Path(), "12", tenant_pattern=service.tenant_pattern, scopes=scopes)


def probe(served: Running) -> str:
    """Return the path of a route that needs a caller."""
    paths = {
        "audiobooks": "/api/v1/auth/me",
        "playlist": "/api/v1/auth/session",
        STUDIO: "/index.json",
    }
    if served.system in paths:
        return paths[served.system]
    route = next(
        each for each in served.spec.routes if each.method == "GET" and each.scope is not None
    )
    return re.sub(r"\{\w+\}", "12", route.path)


async def set_up(served: Running) -> None:
    async with served.client() as client:
        body = {"username": NAME, "password": PASSWORD}
        assert (await client.post("/api/v1/auth/setup", json=body)).status_code == 201


async def audiobooks_login(
    served: Running, client: httpx.AsyncClient, prepared: Any, right: bool
) -> bool:
    body = {"username": NAME, "password": PASSWORD if right else "wrong horse"}
    return (await client.post("/api/v1/auth/login", json=body)).status_code == 200


async def audiobooks_form(
    served: Running, client: httpx.AsyncClient, prepared: Any, right: bool
) -> bool:
    form = {"username": NAME, "password": PASSWORD if right else "wrong horse"}
    return (await client.post("/login", data=form)).status_code == 303


async def audiobooks_session(served: Running) -> str:
    await set_up(served)
    async with served.client() as client:
        body = {"username": NAME, "password": PASSWORD}
        answer = await client.post("/api/v1/auth/login", json=body)
        return str(answer.json()["data"]["token"])


async def audiobooks_key(served: Running) -> str:
    headers = {"Authorization": f"Bearer {await audiobooks_session(served)}"}
    async with served.client() as client:
        made = await client.post("/api/v1/auth/api-keys", json={"name": "x"}, headers=headers)
        return str(made.json()["data"]["key"])


async def audiobooks_cookie(
    served: Running, client: httpx.AsyncClient, token: Any, right: bool
) -> bool:
    headers = {"Cookie": f"session_id={token if right else token[:-1]}"}
    return (await client.get(probe(served), headers=headers)).status_code == 200


async def audiobooks_password(
    served: Running, client: httpx.AsyncClient, token: Any, right: bool
) -> bool:
    """Change the password, with the current one."""
    body = {"current_password": PASSWORD if right else "wrong horse", "new_password": PASSWORD}
    headers = {"Authorization": f"Bearer {token}"}
    answer = await client.put("/api/v1/auth/me/password", json=body, headers=headers)
    return answer.status_code == 200


async def playlist_code(
    served: Running, client: httpx.AsyncClient, prepared: Any, right: bool
) -> bool:
    body = {"username": NAME}
    await client.post("/api/v1/auth/otp/request", json=body)
    code = served.codes[NAME] if right else "WRONG"
    for _ in range(1 if right else 3):
        answer = await client.post("/api/v1/auth/otp/verify", json={**body, "otp": code})
    return bool(answer.json()["status"] == "ok")


async def playlist_form(
    served: Running, client: httpx.AsyncClient, prepared: Any, right: bool
) -> bool:
    await client.post("/login", data={"username": NAME})
    form = {"username": NAME, "code": served.codes[NAME] if right else "WRONG"}
    for _ in range(1 if right else 3):
        answer = await client.post("/login/code", data=form)
    return answer.status_code == 303


async def playlist_session(served: Running) -> str:
    async with served.client() as client:
        assert await playlist_code(served, client, None, True)
        return client.cookies["kryten_playlist_session"]


async def playlist_cookie(
    served: Running, client: httpx.AsyncClient, token: Any, right: bool
) -> bool:
    headers = {"Cookie": f"kryten_playlist_session={token if right else token[:-1]}"}
    return (await client.get(probe(served), headers=headers)).status_code == 200


WAYS: Final[dict[tuple[str, str], Way]] = {
    (STUDIO, "POST /login"): Way(studio_token),
    (STUDIO, "POST /login with a link"): Way(studio_link, new_link, is_single=True),
    (STUDIO, "session"): Way(studio_session, session_of_studio),
    (STUDIO, "bearer"): Way(jwt),
    ("audiobooks", "POST /api/v1/auth/login"): Way(audiobooks_login, set_up),
    ("audiobooks", "POST /login"): Way(audiobooks_form, set_up),
    ("audiobooks", "PUT /api/v1/auth/me/password"): Way(audiobooks_password, audiobooks_session),
    ("audiobooks", "session"): Way(audiobooks_cookie, audiobooks_session),
    ("audiobooks", "sessionToken"): Way(bearer, audiobooks_session),
    ("audiobooks", "API key"): Way(bearer, audiobooks_key),
    ("playlist", "POST /api/v1/auth/otp/verify"): Way(playlist_code),
    ("playlist", "POST /login/code"): Way(playlist_form),
    ("playlist", "session"): Way(playlist_cookie, playlist_session),
    ("playlist", "sessionToken"): Way(bearer, playlist_session),
    ("streamkit", "bearer"): Way(jwt),
    ("streamkit", "cookie"): Way(jwt_cookie),
    ("history", "bearer"): Way(jwt),
    ("history", "cookie"): Way(jwt_cookie),
    (OWN_SCHEMA, "bearer"): Way(jwt),
    (OWN_SCHEMA, "cookie"): Way(jwt_cookie),
}


def open_routes(served: Running) -> list[Route]:
    """Return the routes that anybody may write to."""
    return [
        route
        for route in served.spec.routes
        if (route.scope is None or (served.system, route.path) in ALSO_OPEN)
        and route.method not in ("GET", "HEAD")
    ]


async def flood(served: Running) -> None:
    """Send every request that anybody may send, in the name of the victim and then in names
    that nobody has, from many networks."""
    wrong = {"password": "wrong horse", "otp": "WRONG", "code": "WRONG", "action": "block"}
    wrong |= {"email": "a@example.org", "token": "x", "link": "x"}

    async def send(network: int) -> None:
        async with served.client(f"10.0.{network}.1") as client:
            found = open_routes(served)
            others = [(f"nobody{number}", route) for number, route in enumerate(found)]
            for name, route in [*((NAME, route) for route in found), *others]:
                types = route.parameters or get_type_hints(route.handler)
                kind = "form" if "form" in types else "body"
                members = types[kind].__struct_fields__
                given = {**wrong, "username": name, "hours": "720" if kind == "form" else 720}
                body = {member: given[member] for member in members if member in given}
                for _ in range(REQUESTS_PER_NETWORK):
                    sent = {"data": body} if kind == "form" else {"json": body}
                    answer = await client.request(route.method, route.path, **sent)  # type: ignore[arg-type]
                    assert answer.status_code not in (404, 405, 422), (route.path, answer.text)

    await asyncio.gather(*map(send, range(NETWORKS)))


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_way_to_sign_in_is_in_the_table(system: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with running(system, tmp_path) as served:
            found = {(system, f"{route.method} {route.path}") for route in open_routes(served)}
            if served.spec.auth is not None:
                found |= {(system, scheme) for scheme in served.spec.auth.schemes}
            assert found <= WAYS.keys() | NOT_SIGN_INS.keys()

    asyncio.run(main())


@pytest.fixture(autouse=True)
def without_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attempts count and are rejected as ever; those of an account do not wait, for at most two
    seconds (`tests/service/test_passwords.py`)."""
    check = LoginGuard.check

    async def counted(*arguments: Any) -> float:
        await check(*arguments)
        return 0.0

    monkeypatch.setattr(LoginGuard, "check", counted)


@pytest.mark.parametrize(("system", "way"), list(WAYS))
def test_the_right_one_signs_in_after_twenty_failures_from_other_addresses(
    system: str, way: str, tmp_path: Path
) -> None:
    """Five wrong tokens kept every operator out of the Studio, and four anonymous requests an admin
    out of playlist."""

    async def main() -> None:
        async with running(system, tmp_path) as served:
            attempt = WAYS[system, way].attempt
            prepared = await WAYS[system, way].prepared(served)

            async def fail(number: int) -> bool:
                async with served.client(f"127.0.0.{2 + number}") as other:
                    return await attempt(served, other, prepared, False)

            assert not any(await asyncio.gather(*map(fail, range(FAILURES))))
            async with served.client() as client:
                assert await attempt(served, client, prepared, True)

    asyncio.run(main())


BY_TURNS = [
    pytest.param(*way, known_by, marks=() if number % 2 == by_turns else pytest.mark.extra)
    for number, way in enumerate(WAYS)
    for by_turns, known_by in enumerate(("address", "cookie"))
]
"""Ways of users that are known by their address and by a cookie, in turn; both in
`make test-all`."""


@pytest.mark.parametrize(("system", "way", "known_by"), BY_TURNS)
def test_a_user_signs_in_again_whatever_others_have_sent(
    system: str, way: str, known_by: str, tmp_path: Path
) -> None:
    """60 requests for codes of a name from 12 networks stopped its codes for 15 minutes, and two
    requests that blocked a common address all users behind it for 30 days. With a cookie, the
    others share the address of the user."""

    async def main() -> None:
        async with running(system, tmp_path) as served:
            attempt = WAYS[system, way].attempt
            prepared = await WAYS[system, way].prepared(served)
            cookies = httpx.Cookies()
            async with served.client() as client:
                assert await attempt(served, client, prepared, True)
                if known_by == "cookie":
                    cookies = httpx.Cookies(client.cookies)
            await flood(served)
            if WAYS[system, way].is_single:
                prepared = await WAYS[system, way].prepared(served)
            address = OWN_ADDRESS if known_by == "address" else "10.0.1.1"
            async with served.client(address) as client:
                client.cookies = cookies
                assert await attempt(served, client, prepared, True)

    asyncio.run(main())
