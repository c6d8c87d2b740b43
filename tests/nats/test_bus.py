"""The bus: publish, request and subscribe on a real server, its bounds, and reconnecting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from keyhouse.errors import BusyError, LimitError, UnavailableError, UnknownOutcomeError, UsageError
from keyhouse.nats.bus import Bus, BusMessage, BusSubscription
from keyhouse.nats.connection import connect
from keyhouse.nats.limits import BUS_PENDING_MAX, BUS_REQUESTS_MAX
from keyhouse.nats.server import NatsServer
from tests.support.nats_servers import own_server
from tests.support.polling import loop_turns, until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    with own_server(tmp_path / "nats") as server:
        yield server


@asynccontextmanager
async def joined(server: NatsServer) -> AsyncIterator[Bus]:
    async with connect(server.url) as client:
        yield Bus(client)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(30):
            await scenario()

    asyncio.run(limited())


async def take(messages: BusSubscription, count: int) -> list[BusMessage]:
    return [await anext(messages) for _ in range(count)]


def test_messages_arrive_in_order_and_only_within_the_block(server: NatsServer) -> None:
    async def scenario() -> None:
        async with joined(server) as bus, joined(server) as other:
            async with bus.subscribe("events.*") as messages:
                for number in range(100):
                    await other.publish(f"events.{number % 2}", b"%d" % number)
                got = await take(messages, 100)
                assert [message.data for message in got] == [b"%d" % n for n in range(100)]
                assert got[1].subject == "events.1"
            await other.publish("events.1", b"late")

            async def is_unanswered() -> bool:  # the server has received the unsubscription
                with pytest.raises((UnavailableError, UnknownOutcomeError)) as failed:
                    await other.request("events.1", timeout_seconds=1)
                return "Nobody answers" in str(failed.value)

            await until(is_unanswered)

    run(scenario)


def test_one_member_of_a_queue_group_gets_each_message(server: NatsServer) -> None:
    async def scenario() -> None:
        async with (
            joined(server) as bus,
            bus.subscribe("work", queue="workers") as one,
            bus.subscribe("work", queue="workers") as two,
            bus.subscribe("work") as every,
        ):
            for _ in range(50):
                await bus.publish("work", b"x")
            await take(every, 50)
            received: list[BusMessage] = []

            async def receive(messages: BusSubscription) -> None:
                async for message in messages:
                    received.append(message)

            receiving = [asyncio.ensure_future(receive(each)) for each in (one, two)]
            await until(lambda: len(received) >= 50)
            await loop_turns(10)
            assert len(received) == 50
            for task in receiving:
                task.cancel()

    run(scenario)


def test_a_request_returns_the_reply(server: NatsServer) -> None:
    async def scenario() -> None:
        async with joined(server) as bus, bus.subscribe("double") as messages:

            async def answer() -> None:
                async for message in messages:
                    await bus.publish(message.reply, message.data * 2)

            answering = asyncio.create_task(answer())
            replies = await asyncio.gather(*(bus.request("double", b"%d" % n) for n in range(20)))
            assert replies == [b"%d" % n * 2 for n in range(20)]
            answering.cancel()

    run(scenario)


def test_a_request_without_a_reply_has_an_unknown_outcome(server: NatsServer) -> None:
    async def scenario() -> None:
        async with joined(server) as bus, bus.subscribe("silent"):
            with pytest.raises(UnknownOutcomeError, match="No reply came in time"):
                await bus.request("silent", timeout_seconds=0.05)

    run(scenario)


def test_requests_in_flight_are_bounded(server: NatsServer) -> None:
    async def scenario() -> None:
        async with joined(server) as bus, bus.subscribe("silent"):
            asked = [
                asyncio.create_task(bus.request("silent", timeout_seconds=20))
                for _ in range(BUS_REQUESTS_MAX)
            ]
            await asyncio.sleep(0)
            with pytest.raises(BusyError):
                await bus.request("silent")
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
            with pytest.raises(UnknownOutcomeError):
                await bus.request("silent", timeout_seconds=0.05)

    run(scenario)


def test_a_slow_reader_loses_the_newest_messages_and_they_are_counted(server: NatsServer) -> None:
    async def scenario() -> None:
        registry = CollectorRegistry()
        async with joined(server) as bus, bus.subscribe("flood") as slow:
            registry.register(bus)
            for number in range(BUS_PENDING_MAX + 10):
                await bus.publish("flood", b"%d" % number)
            await until(lambda: slow.dropped == 10)
            got = await take(slow, BUS_PENDING_MAX)
            assert got[-1].data == b"%d" % (BUS_PENDING_MAX - 1)
            await bus.publish("flood", b"next")
            assert (await anext(slow)).data == b"next"
        page = generate_latest(registry).decode()
        assert 'keyhouse_bus_messages_total{outcome="dropped"} 10.0' in page
        assert f'{{outcome="published"}} {BUS_PENDING_MAX + 11}.0' in page

    run(scenario)


@pytest.mark.parametrize(
    "subject", ["", "a b", "a..b", ".a", "a\r\nPUB b 0", "a.*", "a.>", "a\x7f"]
)
def test_an_invalid_subject_is_rejected(server: NatsServer, subject: str) -> None:
    async def scenario() -> None:
        async with joined(server) as bus:
            with pytest.raises(UsageError, match="Invalid NATS subject"):
                await bus.publish(subject, b"x")
            with pytest.raises(UsageError, match="Invalid NATS subject"):
                await bus.request(subject, b"x")

    run(scenario)


def test_a_message_beyond_the_servers_limit_is_rejected(server: NatsServer) -> None:
    async def scenario() -> None:
        async with joined(server) as bus:
            with pytest.raises(LimitError, match="max_payload"):
                await bus.publish("large", b"x" * 2_000_000)

    run(scenario)


def test_without_nats_every_call_reports_it() -> None:
    async def scenario() -> None:
        bus = Bus()
        assert not bus.is_on
        for call in (bus.publish("a", b""), bus.request("a"), bus.subscribe("a").__aenter__()):
            with pytest.raises(UnavailableError, match="NATS is off"):
                await call

    run(scenario)


def test_a_subscription_continues_after_the_server_was_away(server: NatsServer) -> None:
    async def scenario() -> None:
        async with joined(server) as bus, bus.subscribe("events") as messages:
            await bus.publish("events", b"before")
            assert (await anext(messages)).data == b"before"
            await asyncio.to_thread(server.kill)

            async def is_disconnected() -> bool:
                try:
                    await bus.publish("events", b"lost")
                except UnavailableError:
                    return True
                return False

            await until(is_disconnected)
            server.start()
            await asyncio.to_thread(server.ready)

            async def is_delivered() -> bool:
                await bus.publish("events", b"after")
                async with asyncio.timeout(1):
                    while (await anext(messages)).data != b"after":
                        pass
                return True

            await until(is_delivered, retry=(UnavailableError, TimeoutError))

    run(scenario)
