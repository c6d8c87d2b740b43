"""Sessions and API keys over the real HTTP listener, with a store's own records."""

import base64
import hashlib
from typing import Any

import httpx
import msgspec
import pytest

from keyhouse import Record, Schema, Space, Store, Template, open_engine
from keyhouse.auth import (
    HASHED_KEY,
    AnyAuth,
    Caller,
    JwtSettings,
    SessionAuth,
    StoredSession,
    jwt_auth,
    mint,
    new_token,
    secret_hash,
)
from keyhouse.clock import ManualClock
from keyhouse.errors import DeclarationError, UsageError
from keyhouse.http import ClientAddress, Response, Route, delete_cookie, set_cookie
from keyhouse.service.spec import ServiceSpec
from tests.http.support.real_server import Served, run, serving


class Login(msgspec.Struct):
    id: str
    user: str
    secret_hash: str
    expires: int


LOGIN = Record(Login, Template("sess:{id}"), name="session")
SCHEMA = Schema("logins", LOGIN, space=Space("one"))
HOUR = 3_600_000


class Users:
    """A system with sessions in a cookie, the same as API keys, and tokens."""

    def __init__(self, engine: Any, data: Any, **auth: Any) -> None:
        self.clock = ManualClock()
        self.store = Store(SCHEMA, engine, "all")
        self.roles: dict[str, frozenset[str]] = {"ann": frozenset({"admin"})}
        self.renewed: list[int] = []
        if "sliding_seconds" in auth:
            auth["renew"] = self.renew
        self.sessions = SessionAuth(
            self.get,
            cookie="session_id",
            header="X-API-Key",
            bearer=True,
            role_scopes={"admin": ["write"]},
            clock=self.clock,
            **auth,
        )
        self.auth = AnyAuth(self.sessions, jwt_auth(JwtSettings(), data, system="users"))

    async def get(self, id: str) -> StoredSession | None:
        found = await self.store.get(LOGIN, id=id)
        if found is None:
            return None
        roles = self.roles.get(found.user, frozenset())
        caller = Caller(tenant=found.user, roles=roles, scopes=frozenset({"read"}))
        return StoredSession(caller=caller, secret_hash=found.secret_hash, expires=found.expires)

    async def renew(self, id: str, expires: int) -> None:
        self.renewed.append(expires)
        found = await self.store.get(LOGIN, id=id)
        assert found is not None
        await self.store.put(LOGIN, msgspec.structs.replace(found, expires=expires))

    async def sign_in(self, user: str, client: ClientAddress) -> Response[dict[str, str]]:
        """Sign in without a password."""
        made = new_token("s1")
        expires = self.clock.now() + HOUR
        await self.store.put(LOGIN, Login(made.id, user, made.secret_hash, expires))
        cookie = set_cookie("session_id", made.token, client, max_age_seconds=3_600)
        return Response({"token": made.token}, headers=(cookie,))

    async def sign_out(self, caller: Caller, client: ClientAddress) -> Response[None]:
        """Revoke the session."""
        await self.store.delete(LOGIN, id="s1")
        return Response(None, status=204, headers=(delete_cookie("session_id", client),))

    async def whoami(self, caller: Caller) -> dict[str, Any]:
        """Return the caller."""
        return {"user": caller.tenant, "cookie": caller.from_cookie}

    async def page(self, caller: Caller | None) -> dict[str, Any]:
        """Return a page, which anyone may open."""
        return {"user": None if caller is None else caller.tenant}

    async def change(self, caller: Caller) -> dict[str, Any]:
        """Change something."""
        return {"user": caller.tenant}

    def spec(self) -> ServiceSpec:
        return ServiceSpec(
            name="users",
            auth=self.auth,
            routes=[
                Route(method="POST", path="/in/{user}", handler=self.sign_in),
                Route(method="POST", path="/out", handler=self.sign_out, scope=""),
                Route(method="GET", path="/me", handler=self.whoami, scope="read"),
                Route(method="POST", path="/me", handler=self.change, scope="write"),
                Route(method="GET", path="/page", handler=self.page, scope=""),
            ],
        )


async def status(client: Served, **headers: str) -> int:
    client.cookies.clear()
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await client.get("/me", headers=sent)).status_code


def test_a_session_signs_in_by_cookie_header_or_bearer_and_out_at_once(tmp_path: Any) -> None:
    async def scenario() -> None:
        users = Users(await open_engine("memory:"), tmp_path)
        async with serving(users.spec()) as client:
            signed_in = await client.post("/in/ann")
            token = signed_in.json()["token"]
            header = signed_in.headers["set-cookie"]
            assert header == (f"session_id={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age=3600")
            assert (await client.get("/me")).json() == {"user": "ann", "cookie": True}
            assert await status(client, X_API_Key=token) == 200
            assert await status(client, Authorization=f"Bearer {token}") == 200
            [stored] = [each async for each in users.store.scan(LOGIN)]
            assert token.partition(".")[2] not in str(stored), "only the hash is stored"
            signed_out = await client.post("/out", headers={"X-API-Key": token})
            assert "Max-Age=0" in signed_out.headers["set-cookie"]
            assert await status(client, X_API_Key=token) == 401

    run(scenario)


def test_wrong_expired_and_ambiguous_tokens_are_rejected(tmp_path: Any) -> None:
    async def scenario() -> None:
        users = Users(await open_engine("memory:"), tmp_path)
        async with serving(users.spec()) as client:
            token = (await client.post("/in/ann")).json()["token"]
            id, _, secret = token.partition(".")
            for wrong in (
                f"{id}.{'A' * 43}",
                f"other.{secret}",
                f"{id}.{secret[:-1]}",
                f"{id}.{secret}x",
                secret,
                "",
                f"../{id}.{secret}",
                "é" * 20,
            ):
                response = await client.get(
                    "/me", headers=[(b"X-API-Key", wrong.encode("latin-1"))]
                )
                assert response.status_code == 401, wrong
            assert 'error="invalid_token"' in response.headers["www-authenticate"]
            client.cookies.clear()
            twice = [("X-API-Key", token), ("X-API-Key", token)]
            assert (await client.get("/me", headers=twice)).status_code == 401
            two = {"Cookie": f"session_id={token}; session_id=x"}
            assert (await client.get("/me", headers=two)).status_code == 401
            assert await status(client, X_API_Key=token) == 200
            users.clock.advance(seconds=3_600)
            assert await status(client, X_API_Key=token) == 401

    run(scenario)


def test_a_page_for_anyone_treats_a_rejected_cookie_like_none_but_not_a_rejected_key(
    tmp_path: Any,
) -> None:
    async def scenario() -> None:
        users = Users(await open_engine("memory:"), tmp_path)
        async with serving(users.spec()) as client:
            token = (await client.post("/in/ann")).json()["token"]
            client.cookies.clear()
            for sent, user in ((token, "ann"), (f"s1.{'A' * 43}", None), ("malformed", None)):
                headers = {"Cookie": f"session_id={sent}"}
                assert (await client.get("/page", headers=headers)).json() == {"user": user}
            wrong = {"X-API-Key": f"s1.{'A' * 43}"}
            assert (await client.get("/page", headers=wrong)).status_code == 401
            assert (await client.get("/me", headers=headers)).status_code == 401

    run(scenario)


def test_a_cookie_of_another_site_may_not_write_but_a_key_may(tmp_path: Any) -> None:
    async def scenario() -> None:
        users = Users(await open_engine("memory:"), tmp_path)
        foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
        async with serving(users.spec()) as client:
            token = (await client.post("/in/ann")).json()["token"]
            assert (await client.post("/me", headers=foreign)).status_code == 403
            assert (await client.post("/me")).status_code == 200
            client.cookies.clear()
            sent = foreign | {"X-API-Key": token}
            assert (await client.post("/me", headers=sent)).status_code == 200

    run(scenario)


def test_roles_are_read_on_every_request(tmp_path: Any) -> None:
    async def scenario() -> None:
        users = Users(await open_engine("memory:"), tmp_path)
        async with serving(users.spec()) as client:
            await client.post("/in/ann")
            assert (await client.post("/me")).status_code == 200
            users.roles["ann"] = frozenset()
            assert (await client.post("/me")).status_code == 403
            assert (await client.get("/me")).status_code == 200

    run(scenario)


def test_several_authenticators_serve_one_route(tmp_path: Any) -> None:
    async def scenario() -> None:
        users = Users(await open_engine("memory:"), tmp_path)
        async with serving(users.spec()) as client:
            token = mint(JwtSettings(), tmp_path, "bob", system="users")
            sent = {"Authorization": f"Bearer {token}"}
            for _ in range(2):
                assert (await client.get("/me", headers=sent)).json()["user"] == "bob"
            assert await status(client) == 401
            assert await status(client, Authorization="Bearer x.y.z") == 401
            document = (await client.get("/openapi.json")).json()
            assert [*document["components"]["securitySchemes"]] == [
                "session",
                "apiKey",
                "sessionToken",
                "bearer",
                "cookie",
            ]

    run(scenario)


def test_a_sliding_session_is_extended_while_it_is_used(tmp_path: Any) -> None:
    async def scenario() -> None:
        users = Users(await open_engine("memory:"), tmp_path, sliding_seconds=3_600)
        async with serving(users.spec()) as client:
            await client.post("/in/ann")
            for _ in range(5):
                assert (await client.get("/me")).status_code == 200
            assert users.renewed == [], "not with every request"
            for _ in range(4):
                users.clock.advance(seconds=1_800)
                assert (await client.get("/me")).status_code == 200
            assert len(users.renewed) == 4
            users.clock.advance(seconds=3_600)
            assert (await client.get("/me")).status_code == 401

    run(scenario)


def test_the_key_of_a_session_may_be_the_hash_of_its_cookie() -> None:
    async def scenario() -> None:
        made = new_token()
        digest = hashlib.sha256(made.token.encode()).digest()
        assert made.id == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        stored = {made.id: StoredSession(caller=Caller(tenant="ann"))}

        async def get(id: str) -> StoredSession | None:
            return stored.get(id)

        async def me(caller: Caller) -> str:
            """Return the caller."""
            return caller.tenant

        auth = SessionAuth(get, cookie="sid", form=HASHED_KEY)
        route = Route(method="GET", path="/me", handler=me, scope="")
        async with serving(ServiceSpec(name="list", auth=auth, routes=[route])) as client:

            async def ask(cookie: str) -> httpx.Response:
                return await client.get("/me", headers={"Cookie": f"a=b; sid={cookie}"})

            assert (await ask(made.token)).json() == "ann"
            assert (await ask(made.id)).status_code == 401, "a reader of the store"
            assert (await ask(new_token().token)).status_code == 401
            stored.clear()
            assert (await ask(made.token)).status_code == 401

    run(scenario)


def test_declarations_that_cannot_work_are_rejected() -> None:
    async def get(id: str) -> None:
        return None

    with pytest.raises(DeclarationError, match="needs a cookie"):
        SessionAuth(get)
    with pytest.raises(DeclarationError, match="renew"):
        SessionAuth(get, bearer=True, sliding_seconds=1)
    with pytest.raises(DeclarationError, match="letters"):
        new_token("a.b")


def test_tokens_are_random_and_of_the_documented_form() -> None:
    made = [new_token("01J") for _ in range(100)]
    assert len({each.token for each in made}) == 100
    id, _, secret = made[0].token.partition(".")
    assert (id, len(base64.urlsafe_b64decode(secret + "="))) == ("01J", 32)
    assert made[0].secret_hash == secret_hash(secret.encode())


def test_a_cookie_is_secure_under_https_and_takes_no_markup() -> None:
    https = ClientAddress("192.0.2.1", "192.0.2.1", True)
    name, text = set_cookie("sid", "abc", https, path="/studio", same_site="Strict")
    assert (name, text) == (
        "Set-Cookie",
        "sid=abc; Path=/studio; HttpOnly; SameSite=Strict; Secure",
    )
    for name, value, path in (("a;b", "x", "/"), ("a", "x; Domain=b", "/"), ("a", "x", "/\r\n")):
        with pytest.raises(UsageError, match="not valid in a cookie"):
            set_cookie(name, value, https, path=path)


def test_those_who_are_signed_out_are_the_anonymous_caller_where_it_has_the_scope() -> None:
    async def read(caller: Caller) -> str:
        """Read."""
        return caller.tenant or "nobody"

    async def get(id: str) -> StoredSession | None:
        return None

    async def story() -> None:
        auth = SessionAuth(get, cookie="c", anonymous=Caller(tenant="", scopes=frozenset({"read"})))
        routes = [
            Route(method="GET", path=f"/{scope or 'any'}", handler=read, scope=scope)
            for scope in ("", "read", "write")
        ]
        async with serving(ServiceSpec(name="s", auth=auth, routes=routes)) as client:
            for path, status in (("any", 200), ("read", 200), ("write", 401)):
                for cookie in ("", "c=a." + "x" * 43):  # none, and a rejected one
                    headers = {"Cookie": cookie} if cookie else {}
                    response = await client.get(f"/{path}", headers=headers)
                    assert response.status_code == status
            document = (await client.get("/openapi.json")).json()
        security = {
            path: operations["get"]["security"] for path, operations in document["paths"].items()
        }
        open_to_all = {path for path, schemes in security.items() if {} in schemes}
        assert {path.rpartition("/")[2] for path in open_to_all} == {"any", "read"}

    run(story)
