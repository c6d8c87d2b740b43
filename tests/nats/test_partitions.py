"""Requests over the connections of partitions, on a real server that maps subjects to them."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from structlog.testing import capture_logs

from keyhouse.errors import UsageError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import connect
from keyhouse.nats.endpoint import Endpoint, Handler, Request, partition_of
from keyhouse.nats.limits import NATS_PARTITIONS
from keyhouse.nats.listener import NatsListener
from keyhouse.nats.server import NatsServer
from tests.nats.support.listeners import ask
from tests.support.nats_servers import own_server
from tests.support.polling import loop_turns, until

FLOODER, NEIGHBOR = "mallory", "neighbor"


def endpoint(handler: Handler) -> Endpoint:
    return Endpoint(
        name="echo",
        subject="tested.*.*",
        handler=handler,
        operations={"echo": "tested.*.echo"},
        tenant=lambda subject: subject.split(".")[1],
        partition_by=1,
    )


async def echo(request: Request) -> bytes:
    return json.dumps({"subject": request.subject}).encode()


class Partitioned:
    """A listener with a connection for each partition."""

    def __init__(self, listener: NatsListener, main: NatsClient, others: list[NatsClient]) -> None:
        self.listener = listener
        self.main = main
        self.others = others

    def received(self) -> list[int]:
        return [client.stats["in_msgs"] for client in self.others]


@asynccontextmanager
async def partitioned(
    url: str, endpoints: Sequence[Endpoint], *, connections: int = NATS_PARTITIONS
) -> AsyncIterator[Partitioned]:
    async with AsyncExitStack() as stack:
        main = await stack.enter_async_context(connect(url))
        others = [await stack.enter_async_context(connect(url)) for _ in range(connections)]
        read = dict(enumerate(others)) or None
        serving = NatsListener(main, endpoints, name="tested", version="1.0.0", partitions=read)
        await stack.enter_async_context(serving)
        yield Partitioned(serving, main, others)


def run(
    folder: Path,
    scenario: Callable[[NatsServer, Client], Coroutine[Any, Any, None]],
    *,
    maps: bool = True,
) -> None:
    """Run a scenario with a private server and a client of it."""

    async def story(server: NatsServer) -> None:
        async with asyncio.timeout(60):
            plugin = await nats.connect(server.url)
            await scenario(server, plugin)
            await plugin.close()

    with own_server(folder, mappings=dict([endpoint(echo).mapping]) if maps else None) as server:
        asyncio.run(story(server))


def test_a_tenant_is_answered_while_the_flood_of_another_is_not_yet_read(tmp_path: Path) -> None:
    """Both were read over one connection, in order."""
    flood: list[bytes] = []

    async def handler(request: Request) -> bytes:
        if request.subject == f"tested.{FLOODER}.echo":
            flood.append(request.data)
        return await echo(request)

    async def scenario(server: NatsServer, plugin: Client) -> None:
        assert partition_of(FLOODER) != partition_of(NEIGHBOR)
        async with partitioned(server.url, [endpoint(handler)]) as serving:
            flooded: Any = serving.others[partition_of(FLOODER)]
            flooded._transport._io_writer.transport.pause_reading()
            for number in range(5_000):
                await plugin.publish(f"tested.{FLOODER}.echo", b"%d" % number)
            for _ in range(3):
                answer = await ask(plugin, f"tested.{NEIGHBOR}.echo")
                assert answer == {"subject": f"tested.{NEIGHBOR}.echo"}
            assert flood == []
            flooded._transport._io_writer.transport.resume_reading()
            await until(lambda: len(flood) == 5_000)
        assert flood == [b"%d" % number for number in range(5_000)]  # and in order

    run(tmp_path, scenario)


def test_the_server_maps_each_tenant_to_the_partition_that_we_compute(tmp_path: Path) -> None:
    names = ["a", "trivia", "quote-db", FLOODER, NEIGHBOR, "ünï", "x" * 100]
    names += [f"plugin-{n}" for n in range(50)]

    async def scenario(server: NatsServer, plugin: Client) -> None:
        async with partitioned(server.url, [endpoint(echo)]) as serving:
            for name in names:
                before = serving.received()
                assert await ask(plugin, f"tested.{name}.echo") == {
                    "subject": f"tested.{name}.echo"
                }
                before[partition_of(name)] += 1
                assert serving.received() == before, name

    run(tmp_path, scenario)
    assert len({partition_of(name) for name in names}) == NATS_PARTITIONS


def test_nothing_is_lost_or_received_twice_while_mappings_change(tmp_path: Path) -> None:
    seen: Counter[bytes] = Counter()

    async def handler(request: Request) -> bytes:
        seen[request.data] += 1
        assert request.subject.count(".") == 2
        return b"{}"

    async def scenario(server: NatsServer, plugin: Client) -> None:
        stopped = False

        async def repeat(tenant: int) -> int:
            number = 0
            while not stopped:
                data = b"%d %d" % (tenant, number)
                await plugin.request(f"tested.t{tenant}.echo", data, timeout=10)
                number += 1
            return number

        async with partitioned(server.url, [endpoint(handler)]) as serving:
            asking = [asyncio.ensure_future(repeat(tenant)) for tenant in range(8)]
            for mappings in (dict([endpoint(echo).mapping]), {}) * 3:
                server.mappings = mappings
                before = sum(serving.received())
                server.reload()
                if mappings:
                    await until(lambda: sum(serving.received()) > before + 50)  # noqa: B023
                else:
                    handled = seen.total()
                    await until(lambda: seen.total() > handled + 400)  # noqa: B023
            stopped = True
            sent = await asyncio.gather(*asking)
        assert seen == Counter(b"%d %d" % (t, n) for t in range(8) for n in range(sent[t]))

    run(tmp_path, scenario, maps=False)


def test_an_observer_of_the_prefix_sees_every_request(tmp_path: Path) -> None:
    async def scenario(server: NatsServer, plugin: Client) -> None:
        observed: list[str] = []

        async def note(message: Msg) -> None:
            observed.append(message.subject)

        await plugin.subscribe("tested.>", cb=note)
        async with partitioned(server.url, [endpoint(echo)]):
            for name in (FLOODER, NEIGHBOR):
                await ask(plugin, f"tested.{name}.echo")
        assert observed == [
            f"tested.{name}.echo.{partition_of(name)}" for name in (FLOODER, NEIGHBOR)
        ]

    run(tmp_path, scenario)


def test_discovery_and_errors_name_the_subject_without_its_partition(tmp_path: Path) -> None:
    async def handler(request: Request) -> bytes:
        raise ZeroDivisionError

    async def scenario(server: NatsServer, plugin: Client) -> None:
        async with partitioned(server.url, [endpoint(handler)]):
            with capture_logs() as logs:
                assert (await ask(plugin, "tested.trivia.echo"))["success"] is False
            [error] = [line for line in logs if line["log_level"] == "error"]
            assert error["subject"] == "tested.trivia.echo"
            info = await ask(plugin, "$SRV.INFO.tested")
            assert [each["subject"] for each in info["endpoints"]] == ["tested.*.echo"]
            stats = (await ask(plugin, "$SRV.STATS.tested"))["endpoints"]
            assert [(each["num_requests"], each["num_errors"]) for each in stats] == [(1, 1)]

    run(tmp_path, scenario)


@pytest.mark.parametrize("maps", [True, False])
def test_listeners_with_and_without_connections_for_partitions_share_the_load(
    tmp_path: Path, maps: bool
) -> None:
    """A process without the setting would get no requests from a server with mappings."""
    handled: list[Counter[str]] = [Counter(), Counter()]

    def counting(number: int) -> Handler:
        async def handler(request: Request) -> bytes:
            handled[number][request.subject] += 1
            return b"{}"

        return handler

    async def scenario(server: NatsServer, plugin: Client) -> None:
        async with (
            partitioned(server.url, [endpoint(counting(0))]),
            partitioned(server.url, [endpoint(counting(1))], connections=0),
        ):
            await asyncio.gather(*(ask(plugin, f"tested.t{n % 8}.echo") for n in range(400)))

    run(tmp_path, scenario, maps=maps)
    assert sum((handled[0] + handled[1]).values()) == 400
    assert all(set(each) == {f"tested.t{n}.echo" for n in range(8)} for each in handled)


def test_a_drain_answers_what_was_received_over_every_connection(tmp_path: Path) -> None:
    handled = 0

    async def handler(request: Request) -> bytes:
        nonlocal handled
        handled += 1
        await loop_turns(20)
        return b"{}"

    async def scenario(server: NatsServer, plugin: Client) -> None:
        async def attempt(number: int) -> bool:
            try:
                await plugin.request(f"tested.t{number % 32}.echo", timeout=10)
            except NoRespondersError:
                return False
            return True

        async with partitioned(server.url, [endpoint(handler)]) as serving:
            asking = [asyncio.ensure_future(attempt(number)) for number in range(500)]
            await until(lambda: handled >= 100)
            await serving.listener.drain()
            late = [await attempt(number) for number in range(32)]
            answered = await asyncio.gather(*asking)
        assert sum(answered) == handled and not any(late)

    run(tmp_path, scenario)


def test_each_connection_comes_back_after_the_server_was_killed(tmp_path: Path) -> None:
    async def scenario(server: NatsServer, plugin: Client) -> None:
        async with partitioned(server.url, [endpoint(echo)]) as serving:
            await ask(plugin, "tested.trivia.echo")
            await asyncio.to_thread(server.kill)
            server.start()
            await asyncio.to_thread(server.ready)
            clients = (*serving.others, serving.main, plugin)
            await until(lambda: all(client.stats["reconnects"] for client in clients))
            for client in serving.others:
                await client.flush_all()
            for number in range(32):
                await ask(plugin, f"tested.t{number}.echo")

    run(tmp_path, scenario)


@pytest.mark.parametrize(("subject", "number"), [("a.*", 2), ("a.*", 0), ("a.>", 1), ("a.b", 1)])
def test_a_partition_by_something_else_than_a_wildcard_is_rejected(
    subject: str, number: int
) -> None:
    with pytest.raises(UsageError, match="number of a wildcard"):
        Endpoint(name="echo", subject=subject, handler=echo, partition_by=number)


def test_a_mapping_keeps_all_tokens_and_appends_the_partition() -> None:
    mapped = Endpoint(name="echo", subject="a.*.b.*", handler=echo, partition_by=2)
    assert mapped.mapping == ("a.*.b.*", "a.{{wildcard(1)}}.b.{{wildcard(2)}}.{{partition(16,2)}}")
