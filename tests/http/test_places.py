"""Places of requests in flight: a tenant waits for itself, and all take turns."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from keyhouse.auth import Authenticator, Caller
from keyhouse.auth.caller import HeaderPairs
from keyhouse.errors import RateError
from keyhouse.http import Route, make_app
from keyhouse.http.limits import HTTP_TENANT_PLACES
from keyhouse.scheduling.turns import Places
from tests.http.support.asgi_client import asking
from tests.http.support.shop import shop


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


async def entered(places: Places, tenant: str, order: list[str]) -> None:
    line = places.line(tenant)
    if not places.try_start(line):
        await places.wait_for_place(line)
    order.append(tenant)


async def entering(places: Places, tenant: str) -> asyncio.Task[None]:
    """Return a task that has entered, or waits."""
    task = asyncio.create_task(entered(places, tenant, []))
    await asyncio.sleep(0)
    return task


def leave(places: Places, tenant: str) -> None:
    places.leave(places.line(tenant))


def test_a_tenant_at_its_share_waits_and_others_enter() -> None:
    async def story() -> None:
        places = Places(10, 2, 100)
        assert (await entering(places, "ann")).done()
        assert (await entering(places, "ann")).done()
        waiting = await entering(places, "ann")
        assert (await entering(places, "bob")).done()
        leave(places, "bob")
        await asyncio.sleep(0)
        assert not waiting.done()
        leave(places, "ann")
        await waiting

    run(story)


def test_free_places_go_round_the_waiting_tenants() -> None:
    async def story() -> None:
        places = Places(1, 5, 100)
        order: list[str] = []
        await entered(places, "cid", [])
        names = ["ann"] * 3 + ["bob"] * 2 + ["dan"]
        tasks = [asyncio.create_task(entered(places, name, order)) for name in names]
        await asyncio.sleep(0)
        previous = "cid"
        for _ in names:
            leave(places, previous)
            await asyncio.sleep(0)
            previous = order[-1]
        assert order == ["ann", "bob", "dan", "ann", "bob", "ann"]
        await asyncio.gather(*tasks)

    run(story)


def test_a_cancelled_request_takes_no_place() -> None:
    async def story() -> None:
        places = Places(1, 1, 100)
        order: list[str] = []
        await entered(places, "ann", order)
        tasks = [asyncio.create_task(entered(places, "ann", order)) for _ in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        leave(places, "ann")  # the second has the place, and is cancelled before it runs
        tasks[1].cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        assert order == ["ann", "ann"] and tasks[2].done()
        leave(places, "ann")
        assert (await entering(places, "bob")).done()
        leave(places, "bob")
        assert (await entering(places, "ann")).done()

    run(story)


def test_too_many_waiting_requests_are_rejected() -> None:
    async def story() -> None:
        places = Places(1, 1, 2)
        await entering(places, "ann")
        waiting = [await entering(places, "ann"), await entering(places, "ann")]
        with pytest.raises(RateError):
            await (await entering(places, "ann"))
        waiting.append(await entering(places, "bob"))
        assert not any(task.done() for task in waiting)
        for task in waiting:
            task.cancel()

    run(story)


def test_requests_of_one_tenant_beyond_its_share_wait_for_each_other() -> None:
    running = most = 0
    release = asyncio.Event()

    async def hold(caller: Caller) -> None:
        nonlocal running, most
        if caller.tenant == "ann":
            running += 1
            most = max(most, running)
            await release.wait()
            running -= 1

    part = shop()
    part.routes = [Route(method="GET", path="/hold", handler=hold, scope="read")]

    async def story() -> None:
        app = make_app([part])
        ann, bob = ({"Authorization": f"Bearer {name}:read"} for name in ("ann", "bob"))
        calls = [
            asyncio.create_task(asking(app, "GET", "/shop/hold", headers=ann))
            for _ in range(3 * HTTP_TENANT_PLACES)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        assert running == HTTP_TENANT_PLACES
        assert (await asking(app, "GET", "/shop/hold", headers=bob)).status == 204
        release.set()
        assert {(await call).status for call in calls} == {204}
        assert most == HTTP_TENANT_PLACES

    run(story)


def test_users_of_one_tenant_take_turns_whose_callers_name_them() -> None:
    release = asyncio.Event()

    async def hold(caller: Caller) -> None:
        if caller.subject == "ann":
            await release.wait()

    class Users(Authenticator):
        schemes: Mapping[str, Mapping[str, Any]] = {}

        def cached_caller(self, headers: Mapping[bytes, bytes]) -> Caller:
            name = headers[b"authorization"].decode()
            return Caller(tenant="library", subject=name, turn=name, scopes=frozenset({"read"}))

        async def authenticate(self, headers: HeaderPairs) -> Caller:
            return self.cached_caller(dict(headers))

    part = shop()
    part.auth = Users()
    part.routes = [Route(method="GET", path="/hold", handler=hold, scope="read")]

    async def story() -> None:
        app = make_app([part])
        calls = [
            asyncio.create_task(asking(app, "GET", "/shop/hold", headers={"Authorization": "ann"}))
            for _ in range(2 * HTTP_TENANT_PLACES)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        reply = await asking(app, "GET", "/shop/hold", headers={"Authorization": "bob"})
        assert reply.status == 204
        release.set()
        assert {(await call).status for call in calls} == {204}

    run(story)
