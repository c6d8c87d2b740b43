"""Watches over NATS, of a service that stops them or whose messages are lost."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import nats
import pytest
from nats.aio.client import Client

from keyhouse.errors import KeyhouseError, UnavailableError, WatchExpiredError
from keyhouse.remote_store.nats_requests import NatsRequests, NatsTenant
from tests.support.nats_servers import nats_server

TENANT = NatsTenant("ann", "stopped.ann", "stopped.changes.ann")

Changes = AsyncGenerator[dict[str, Any] | int, None]


def change(number: int, revision: int) -> dict[str, Any]:
    return {"n": number, "key": f"k{number}", "revision": revision}


async def watching(
    watches: list[list[dict[str, Any]]], follow: Callable[[Changes], Awaitable[None]]
) -> list[int]:
    """Serve each watch with the next of these lists of messages. Return the revisions after which
    watches were asked for."""
    connection, asked = await nats.connect(nats_server().url), list[int]()

    async def connected() -> Client:
        return connection

    async def respond(message: Any) -> None:
        request = json.loads(message.data)
        asked.append(request["since"])
        reply = {"success": True, "revision": request["since"]}
        await message.respond(json.dumps(reply).encode())
        for each in watches.pop(0):
            await connection.publish(request["subject"], json.dumps(each).encode())

    await connection.subscribe("stopped.ann.watch", cb=respond)
    try:
        requests = NatsRequests(connected, TENANT, 30)
        async with asyncio.timeout(30), aclosing(requests.watch({}, 4)) as changes:
            await follow(changes)
    finally:
        await connection.close()
    return asked


@pytest.mark.parametrize(
    ("end", "raised"), [("INTERNAL_ERROR", KeyhouseError), ("WATCH_EXPIRED", WatchExpiredError)]
)
def test_the_error_that_stopped_a_watch_is_raised(end: str, raised: type[KeyhouseError]) -> None:
    """A remote store watched again, twice a second, without end and without a word."""

    async def follow(changes: Changes) -> None:
        with pytest.raises(raised) as error:
            await anext(changes)
        assert type(error.value) is raised

    assert asyncio.run(watching([[{"n": 1, "end": end}]], follow)) == [4]


@pytest.mark.parametrize("end", ["drained", "overflow", "DATABASE_ERROR"])
def test_a_watch_continues_behind_the_last_whole_commit(end: str) -> None:
    """Each change is yielded once, also those of a commit of which a part was lost."""
    first = [change(1, 5), change(2, 6), {"n": 3, "end": end}]
    again = [{**change(2, 6), "n": 1}, {**change(3, 6), "n": 2}]
    found: list[Any] = []

    async def follow(changes: Changes) -> None:
        while len(found) < 5:
            each = await anext(changes)
            found.append(each if isinstance(each, int) else each["key"])

    assert asyncio.run(watching([first, again], follow)) == [4, 5]
    assert found == [4, "k1", 5, "k2", "k3"]


def test_a_watch_on_a_closed_connection_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It raised an error of nats-py, from within."""

    async def story() -> None:
        connection = await nats.connect(nats_server().url)
        request = connection.request

        async def connected() -> Client:
            return connection

        async def respond(message: Any) -> None:
            await message.respond(b'{"success":true,"revision":4}')

        async def close_after(*arguments: Any, **options: Any) -> Any:
            reply = await request(*arguments, **options)
            await connection.close()
            return reply

        monkeypatch.setattr(connection, "request", close_after)
        await connection.subscribe("closed.ann.watch", cb=respond)
        tenant = NatsTenant("ann", "closed.ann", "closed.changes.ann")
        async with asyncio.timeout(30):
            with pytest.raises(UnavailableError, match="is closed"):
                await anext(NatsRequests(connected, tenant, 30).watch({}, 4))

    asyncio.run(story())
