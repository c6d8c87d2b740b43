"""Watches over NATS with several processes: any of them gets the request that stops or replaces a
watch, and another may run it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from keyhouse.serve.server import Server
from keyhouse.service.registry import load_service
from keyhouse.service.schema_service.service import schema_service
from keyhouse.settings.sources import load_settings
from tests.service.schema_service.support.recipes import BOX
from tests.support.nats_servers import own_server

ROUNDS = 12
"""Each request goes to one of two processes: a fault that needs the other one shows in half."""


class Caller:
    """A client of one kind of service. `put` writes a key; `watch` starts or stops a watch."""

    def __init__(self, client: Client, kind: str) -> None:
        self._client = client
        self.kind = kind

    async def ask(self, operation: str, body: dict[str, Any]) -> dict[str, Any]:
        start = "db.kv.trivia" if self.kind == "rosey" else f"keyhouse.{BOX.name}.trivia"
        reply = await self._client.request(f"{start}.{operation}", json.dumps(body).encode(), 10)
        answer: dict[str, Any] = json.loads(reply.data)
        assert answer["success"], answer
        return answer

    async def watch(self, subject: str, **more: Any) -> dict[str, Any]:
        named = {} if self.kind == "rosey" else {"record": "recipe"}
        return await self.ask("watch", {"subject": subject, **named, **more})

    async def put(self, name: str) -> None:
        if self.kind == "rosey":
            await self.ask("set", {"key": name, "value": 1})
        else:
            value = {"title": name, "slug": name, "secret": "s"}
            body = {"record": "recipe", "fields": {"id": name}, "value": value}
            await self.ask("put", body)

    def subject(self, name: str) -> str:
        prefix = (
            "db.changes.trivia" if self.kind == "rosey" else f"keyhouse.changes.{BOX.name}.trivia"
        )
        return f"{prefix}.{name}"

    async def listen(self, name: str) -> "Listener":
        messages = await self._client.subscribe(self.subject(name))
        await self._client.flush()
        return Listener(messages)


class Listener:
    def __init__(self, messages: Subscription) -> None:
        self._messages = messages

    async def until(self, name: str) -> list[dict[str, Any]]:
        """Return the messages up to the change of this key."""
        received: list[dict[str, Any]] = []
        while not received or received[-1].get("key", "").rpartition(":")[2] != name:
            received.append(json.loads((await self._messages.next_msg(timeout=20)).data))
        return received

    def waiting(self) -> int:
        return self._messages.pending_msgs


@asynccontextmanager
async def processes(kind: str, folder: Path) -> AsyncIterator[Caller]:
    """Serve twice, on one store and one NATS server."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(own_server(folder / "nats"))
        name = kind if kind == "rosey" else BOX.name
        build = load_service("rosey") if kind == "rosey" else schema_service(BOX)
        for number in range(2):
            flags = {
                "data": str(folder / str(number)),
                "engine": f"sqlite:{folder}/shared.db",
                "http": "off",
                "nats": server.url,
            }
            loaded = load_settings(flags, {}, None, systems=(name,))
            await stack.enter_async_context(Server(loaded, {name: build}))
        client = await nats.connect(server.url)
        stack.push_async_callback(client.close)
        yield Caller(client, kind)


@pytest.mark.parametrize("kind", ["rosey", "schema"])
def test_a_watch_is_stopped_and_replaced_whichever_process_runs_it(
    kind: str, tmp_path: Path
) -> None:
    """The other process did not find it: `stopped` was false and changes still came; a watch of the
    same subject again left two, so that each change came twice."""

    async def story() -> None:
        async with asyncio.timeout(120), processes(kind, tmp_path) as caller:
            for number in range(ROUNDS):
                first, control = (
                    await caller.listen(f"a{number}"),
                    await caller.listen(f"b{number}"),
                )
                for _ in range(3):
                    await caller.watch(caller.subject(f"a{number}"))
                await caller.put(f"x{number}")
                messages = await first.until(f"x{number}")
                assert [message["n"] for message in messages] == [1], messages
                stopped = await caller.watch(caller.subject(f"a{number}"), stop=True)
                assert stopped["stopped"] is True
                await caller.watch(caller.subject(f"b{number}"))
                await caller.put(f"y{number}")
                await control.until(f"y{number}")
                assert first.waiting() == 1  # that it has ended
                again = await caller.watch(caller.subject(f"a{number}"), stop=True)
                assert again["stopped"] is False

    asyncio.run(story())


def test_of_watches_that_start_at_the_same_time_one_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with asyncio.timeout(120), processes("rosey", tmp_path) as caller:
            for number in range(ROUNDS):
                listener = await caller.listen(f"a{number}")
                starts = (caller.watch(caller.subject(f"a{number}")) for _ in range(6))
                await asyncio.gather(*starts)
                await caller.put(f"x{number}")
                await listener.until(f"x{number}")
                await caller.put(f"y{number}")
                assert len(await listener.until(f"y{number}")) == 1

    asyncio.run(story())
