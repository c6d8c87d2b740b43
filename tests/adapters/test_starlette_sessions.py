"""Sessions of Starlette: over the real middleware, and by the contract of its stores."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starsessions import SessionAutoloadMiddleware, SessionMiddleware

from keyhouse import ManualClock, Store, open_engine
from keyhouse.adapters.starlette_sessions import SESSIONS, KeyhouseSessionStore


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[KeyhouseSessionStore, ManualClock]]:
    clock = ManualClock()
    async with open_engine("memory:", clock=clock) as engine:
        yield KeyhouseSessionStore(Store(SESSIONS, engine, "site")), clock


def test_the_contract_of_a_session_store() -> None:
    async def main() -> None:
        async with opened() as (sessions, clock):
            assert await sessions.read("a", 60) == b""
            assert await sessions.write("a", b"\x00\xff", 60, 60) == "a"
            assert await sessions.read("a", 60) == b"\x00\xff"
            await sessions.write("browser", b"x", 0, 0)
            clock.advance(seconds=60)
            assert await sessions.read("a", 60) == b""
            assert await sessions.read("browser", 0) == b"x"
            await sessions.remove("browser")
            await sessions.remove("absent")
            assert await sessions.read("browser", 0) == b""

    asyncio.run(main())


def test_a_session_id_is_not_stored() -> None:
    async def main() -> None:
        async with opened() as (sessions, _):
            await sessions.write("secret-id", b"x", 60, 60)
            rows = [row async for row in sessions.store.row_scan()]
            assert rows and not any("secret-id" in f"{row.key}{row.value!r}" for row in rows)

    asyncio.run(main())


async def count(request: Request) -> JSONResponse:
    request.session["n"] = request.session.get("n", 0) + 1
    return JSONResponse(request.session["n"])


def test_the_middleware_keeps_a_session() -> None:
    async def main() -> None:
        async with opened() as (sessions, clock):
            app = Starlette(routes=[Route("/", count)])
            app.add_middleware(SessionAutoloadMiddleware)
            app.add_middleware(
                SessionMiddleware, store=sessions, lifetime=60, cookie_https_only=False
            )
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://site") as client:
                assert [(await client.get("/")).json() for _ in range(3)] == [1, 2, 3]
                clock.advance(seconds=61)
                assert (await client.get("/")).json() == 1

    asyncio.run(main())
