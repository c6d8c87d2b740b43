"""Tenants of one listener: they take turns, and a flood of one rejects no other."""

import asyncio
import time

from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.nats.listener import START_PER_TURN_MAX, START_SECONDS, RequestTurns
from tests.nats.support.listeners import ask, client, listener
from tests.support.polling import until


def test_tenants_take_turns_however_many_requests_one_of_them_has_sent() -> None:
    order: list[str] = []
    gate = asyncio.Event()

    async def handler(request: Request) -> bytes:
        await gate.wait()
        order.append(request.subject.split(".")[1])
        return b"{}"

    async def scenario() -> None:
        tenants = Endpoint(
            name="echo",
            subject="tested.*.echo",
            handler=handler,
            tenant=lambda subject: subject.split(".")[1],
        )
        async with listener([tenants], in_flight_max=2) as serving, client() as plugin:
            for _ in range(3_000):
                await plugin.publish("tested.mallory.echo", b"{}")
            asked = [asyncio.ensure_future(ask(plugin, "tested.ann.echo")) for _ in range(20)]
            await until(lambda: serving.requests.waiting == 3_018)  # 2 are in flight
            gate.set()
            await asyncio.gather(*asked)
            await until(lambda: len(order) == 3_020)
        last = max(place for place, tenant in enumerate(order) if tenant == "ann")
        assert order[:last].count("mallory") < 50

    asyncio.run(scenario())


def test_a_flood_of_one_tenant_does_not_reject_another() -> None:
    gate = asyncio.Event()
    rejected: list[str] = []

    async def handler(request: Request) -> bytes:
        await gate.wait()
        return b'{"success":true}'

    async def scenario() -> None:
        tenants = Endpoint(
            name="echo",
            subject="tested.*.echo",
            handler=handler,
            rejected=lambda subject, reply: bool(rejected.append(subject)) or True,  # type: ignore[func-returns-value]
            tenant=lambda subject: subject.split(".")[1],
        )
        async with listener([tenants], in_flight_max=1, pending_max=400), client() as plugin:
            for _ in range(500):
                await plugin.publish("tested.mallory.echo", b"{}")
            asked = [asyncio.ensure_future(ask(plugin, "tested.ann.echo")) for _ in range(50)]
            await until(lambda: len(rejected) == 500 - 1 - 300)
            gate.set()
            assert all(answer["success"] for answer in await asyncio.gather(*asked))
        assert set(rejected) == {"tested.mallory.echo"}

    asyncio.run(scenario())


def test_a_large_message_counts_as_several_that_start_in_a_turn() -> None:
    """32 documents of 60 KB took 30 ms, before anything else had its turn."""

    async def scenario() -> tuple[int, int]:
        messages = RequestTurns(raise_it)
        line = messages.line("mallory")
        large = sum(messages.try_start(line, 60_000) for _ in range(100))
        await asyncio.sleep(0)
        small = sum(messages.try_start(line, 100) for _ in range(100))
        return large, small

    assert asyncio.run(scenario()) == (3, START_PER_TURN_MAX)


def test_pending_messages_start_for_a_bounded_time_in_each_turn() -> None:
    turn = 0
    turns: list[int] = []

    async def work() -> None:
        turns.append(turn)
        until = time.perf_counter() + START_SECONDS / 2
        while time.perf_counter() < until:
            pass

    async def scenario() -> None:
        nonlocal turn
        messages = RequestTurns(raise_it)
        line = messages.line("mallory")
        for _ in range(30):
            messages.wait(line, (work, ()), 10)
        while messages.waiting or messages.running:
            turn += 1
            await asyncio.sleep(0)

    asyncio.run(scenario())
    assert len(turns) == 30 and max(map(turns.count, turns)) <= 3


def raise_it(error: BaseException) -> None:
    raise error
