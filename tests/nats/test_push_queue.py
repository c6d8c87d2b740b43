"""Pushes: sent in turns of the tenants, bounded in bytes, and never ahead of their order."""

import asyncio

import pytest

from keyhouse.errors import BusyError
from keyhouse.nats.connection import connect
from keyhouse.nats.limits import NATS_TENANT_PUSH_BYTES_MAX, NATS_TENANT_PUSH_BYTES_PER_SECOND
from keyhouse.nats.push_queue import PushQueue
from tests.nats.support.listeners import client, subscribed
from tests.support.nats_servers import nats_server

LARGE = b"x" * 500_000


def test_tenants_take_turns_and_one_that_sends_much_is_slowed_down() -> None:
    order: list[str] = []

    async def scenario() -> float:
        async with connect(nats_server().url) as connection:
            pushes = PushQueue(connection)

            async def send(tenant: str, data: bytes) -> None:
                await pushes.send(tenant, f"tested.{tenant}", data)
                order.append(tenant)

            loop = asyncio.get_running_loop()
            started = loop.time()
            large = [asyncio.create_task(send("mallory", LARGE)) for _ in range(8)]
            await asyncio.sleep(0)
            small = [asyncio.create_task(send("ann", b"{}")) for _ in range(5)]
            for _ in range(3):
                await asyncio.gather(*large)
                large = [asyncio.create_task(send("mallory", LARGE)) for _ in range(8)]
            await asyncio.gather(*large, *small)
            return loop.time() - started

    seconds = asyncio.run(scenario())
    assert order.index("ann") <= 3 and order[:20].count("ann") == 5
    burst = NATS_TENANT_PUSH_BYTES_PER_SECOND / 4 + 2 * len(LARGE)
    assert seconds >= (32 * len(LARGE) - burst) / NATS_TENANT_PUSH_BYTES_PER_SECOND


def test_bytes_that_wait_are_bounded_and_messages_keep_their_order() -> None:
    async def scenario() -> None:
        async with connect(nats_server().url) as connection, client() as plugin:
            heard = await subscribed(plugin, "tested.pushes")
            pushes = PushQueue(connection)
            fitting = NATS_TENANT_PUSH_BYTES_MAX // len(LARGE)
            sending = [
                asyncio.create_task(pushes.send("a", "tested.pushes", LARGE + b"%d" % number))
                for number in range(fitting + 1)
            ]
            results = await asyncio.gather(*sending, return_exceptions=True)
            assert results[:fitting] == [None] * fitting
            assert isinstance(results[fitting], BusyError)
            numbers = [(await heard.next_msg(10)).data[len(LARGE) :] for _ in range(fitting)]
            assert numbers == [b"%d" % number for number in range(fitting)]

    asyncio.run(scenario())


def test_a_push_that_was_cancelled_is_not_sent_and_delays_no_other() -> None:
    async def scenario() -> None:
        async with connect(nats_server().url) as connection, client() as plugin:
            heard = await subscribed(plugin, "tested.cancelled")
            pushes = PushQueue(connection)
            tasks = [
                asyncio.create_task(pushes.send("a", "tested.cancelled", b"%d" % number))
                for number in range(3)
            ]
            await asyncio.sleep(0)
            tasks[1].cancel()
            with pytest.raises(asyncio.CancelledError):
                await tasks[1]
            await asyncio.gather(tasks[0], tasks[2])
            assert [(await heard.next_msg(10)).data for _ in range(2)] == [b"0", b"2"]
            await pushes.close()

    asyncio.run(scenario())
