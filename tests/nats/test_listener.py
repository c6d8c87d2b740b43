"""The NATS listener on a real server: replies, errors by type, the micro protocol, backpressure,
drain, reconnect."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg
from nats.errors import NoRespondersError
from structlog.testing import capture_logs

from keyhouse.errors import (
    DocumentError,
    LimitError,
    RevisionError,
    UnavailableError,
    UnknownOutcomeError,
)
from keyhouse.nats.client import NatsClient
from keyhouse.nats.connection import ConnectionLog, connect
from keyhouse.nats.endpoint import Endpoint, ReplySubjects, Request, error_reply
from keyhouse.nats.limits import NATS_TENANT_IN_FLIGHT_MAX
from keyhouse.nats.listener import NatsListener
from keyhouse.nats.micro import VERBS
from keyhouse.nats.server import NatsServer
from tests.nats.support.listeners import ask, client, listener, subscribed
from tests.support.nats_servers import nats_server, own_server
from tests.support.polling import loop_turns, until


def endpoint(
    handler: Callable[[Request], Awaitable[bytes | None]], subject: str = "tested.*.echo"
) -> Endpoint:
    return Endpoint(name="echo", subject=subject, handler=handler)


async def echo(request: Request) -> bytes:
    return json.dumps(
        {"success": True, "subject": request.subject, "data": request.data.decode()}
    ).encode()


def test_a_message_gets_the_reply_of_its_handler() -> None:
    async def scenario() -> None:
        async with listener([endpoint(echo)]), client() as plugin:
            answer = await ask(plugin, "tested.a.echo", b"hello")
            assert answer == {"success": True, "subject": "tested.a.echo", "data": "hello"}

    asyncio.run(scenario())


def test_no_reply_goes_to_a_subject_of_any_service_of_the_process() -> None:
    """Each service knew its own subjects only."""
    seen: list[bytes] = []

    async def handler(request: Request) -> bytes:
        seen.append(request.data)
        return request.data

    async def scenario() -> None:
        replies = ReplySubjects()
        replies.protect("other.*.put", "changes.")
        async with listener([endpoint(handler)], replies=replies), client() as plugin:
            heard = await subscribed(plugin, ">")
            for reply in ("other.victim.put", "changes.x", "tested.a.echo", "free.x"):
                await plugin.publish("tested.a.echo", reply.encode(), reply=reply)
            message = await heard.next_msg(timeout=30)
            while message.subject == "tested.a.echo":
                message = await heard.next_msg(timeout=30)
            assert (message.subject, message.data) == ("free.x", b"free.x")
            assert len(seen) == 4, "the others were handled, and got no reply"

    asyncio.run(scenario())


def test_a_message_without_a_reply_subject_is_handled_without_a_reply() -> None:
    seen: list[bytes] = []

    async def handler(request: Request) -> bytes:
        assert request.reply == ""
        seen.append(request.data)
        return b"{}"

    async def scenario() -> None:
        async with listener([endpoint(handler)]), client() as plugin:
            await plugin.publish("tested.a.echo", b"1")
            await until(lambda: seen == [b"1"])

    asyncio.run(scenario())


@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
def test_an_error_reply_has_its_type_and_the_next_request_is_served(waits: bool) -> None:
    raised: list[Exception] = [
        LimitError("The value is too large.", bytes=7, limit=6),
        UnavailableError("The database can't be reached.", host="db.internal"),
        ZeroDivisionError("secret detail"),
    ]

    async def handler(request: Request) -> bytes:
        if waits:
            await asyncio.sleep(0)
        if raised:
            raise raised.pop(0)
        return b'{"success":true}'

    async def scenario() -> None:
        async with listener([endpoint(handler)]), client() as plugin:
            with capture_logs() as logs:
                answers = [await ask(plugin, "tested.a.echo") for _ in range(4)]
        assert [answer.get("error_code") for answer in answers] == [
            "VALUE_TOO_LARGE",
            "DATABASE_ERROR",
            "INTERNAL_ERROR",
            None,
        ]
        assert answers[0]["message"] == "The value is too large. (bytes=7, limit=6)"
        assert answers[1]["message"] == "The database can't be reached."  # and not which one
        assert "secret" not in answers[2]["message"]
        assert [line["event"] for line in logs if line["log_level"] == "error"] == [
            "unhandled exception"
        ]

    asyncio.run(scenario())


def test_an_error_reply_has_the_headers_of_the_micro_protocol() -> None:
    """Clients of that protocol took a rejection for a success."""
    raised = [LimitError("Too large."), RevisionError("Stale."), OSError("detail"), None]

    async def handler(request: Request) -> bytes:
        if (error := raised.pop(0)) is not None:
            raise error
        return b"{}"

    async def scenario() -> list[object]:
        async with listener([endpoint(handler)]), client() as plugin:
            replies = [await plugin.request("tested.a.echo", timeout=10) for _ in range(4)]
        return [reply.headers for reply in replies]

    assert asyncio.run(scenario()) == [
        {"Nats-Service-Error": code, "Nats-Service-Error-Code": number}
        for code, number in [
            ("VALUE_TOO_LARGE", "413"),
            ("CONFLICT", "409"),
            ("INTERNAL_ERROR", "500"),
        ]
    ] + [None]


def test_an_unknown_outcome_has_its_own_reply() -> None:
    """Each engine's sentence advises a retry with the batch id. A plugin has no batch id, and did
    not learn that the write may have been applied."""
    error = UnknownOutcomeError(
        "The server did not answer; repeat with the same batch id.", table="secret"
    )
    answer = json.loads(error_reply(error))
    assert answer["error_code"] == "DATABASE_ERROR" and answer["message"].startswith(
        "The outcome is unknown: the write may"
    )
    assert "batch id" not in answer["message"]


def test_every_flat_reply_is_utf_8() -> None:
    answer = json.loads(error_reply(DocumentError("No.", key="\ud800")))
    assert answer["error_code"] == "VALIDATION_ERROR" and answer["success"] is False


def test_a_reply_that_is_too_large_for_nats_becomes_an_error() -> None:
    async def handler(request: Request) -> bytes:
        return b"x" * 2_000_000

    async def scenario() -> None:
        async with listener([endpoint(handler)]), client() as plugin:
            answer = await ask(plugin, "tested.a.echo")
            assert answer["error_code"] == "VALUE_TOO_LARGE" and "2000000" in answer["message"]

    asyncio.run(scenario())


# The micro protocol


def test_ping_info_and_stats_follow_the_micro_protocol() -> None:
    async def handler(request: Request) -> bytes:
        if request.data == b"no":
            raise LimitError("No.")
        return b"{}"

    serving = Endpoint(
        name="kv",
        subject="tested.>",
        handler=handler,
        operations={"set": "tested.*.set", "get": "tested.*.get"},
    )

    async def scenario() -> None:
        async with (
            listener([serving], queue="shared", description="For tests."),
            client() as plugin,
        ):
            ping = await ask(plugin, "$SRV.PING.tested")
            assert ping["type"] == "io.nats.micro.v1.ping_response"
            assert (ping["name"], ping["version"], ping["metadata"]) == ("tested", "1.2.3", {})
            await ask(plugin, "tested.a.set")
            await ask(plugin, "tested.a.set", b"no")
            await ask(plugin, "tested.a.other")
            info = await ask(plugin, f"$SRV.INFO.tested.{ping['id']}")
            assert (
                info["type"] == "io.nats.micro.v1.info_response"
                and info["description"] == "For tests."
            )
            assert [
                (each["name"], each["subject"], each["queue_group"]) for each in info["endpoints"]
            ] == [
                ("set", "tested.*.set", "shared"),
                ("get", "tested.*.get", "shared"),
            ]
            stats = await ask(plugin, "$SRV.STATS.tested")
            assert stats["type"] == "io.nats.micro.v1.stats_response"
            first, second = stats["endpoints"]
            assert (first["num_requests"], first["num_errors"], first["last_error"]) == (
                2,
                1,
                "VALUE_TOO_LARGE",
            )
            assert first["processing_time"] >= first["average_processing_time"] > 0
            assert (second["num_requests"], second["processing_time"], second["last_error"]) == (
                0,
                0,
                "",
            )

    asyncio.run(scenario())


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", ["", ".tested"])
def test_discovery_replies_to_no_subject_where_its_sender_may_not_publish(
    verb: str, name: str
) -> None:
    """A PING with a reply subject of the service made the service publish there."""
    seen: list[str] = []

    async def handler(request: Request) -> bytes:
        seen.append(request.subject)
        return b"{}"

    protected = ("tested.a.set", "$JS.API.x", "$SRV.PING.x", "keyhouse.x", "_INBOX_other.x")

    async def scenario() -> None:
        async with listener([endpoint(handler)]), client() as plugin, client() as watcher:
            got: list[str] = []

            async def record(message: Msg) -> None:
                got.append(message.subject)

            for subject in (*protected, "own.done"):
                await watcher.subscribe(subject, cb=record)
            await watcher.flush()
            for reply in (*protected, "own.done"):
                await plugin.publish(f"$SRV.{verb}{name}", b"", reply=reply)
            await until(lambda: "own.done" in got)
            assert got == ["own.done"] and seen == []

    asyncio.run(scenario())


def test_the_drivers_micro_types_parse_the_replies() -> None:
    from nats.micro.service import ServiceInfo, ServicePing, ServiceStats

    async def scenario() -> None:
        async with listener([endpoint(echo)]), client() as plugin:
            ServicePing.from_dict(await ask(plugin, "$SRV.PING.tested"))
            ServiceInfo.from_dict(await ask(plugin, "$SRV.INFO.tested"))
            stats = await ask(plugin, "$SRV.STATS.tested")
            for each in stats["endpoints"]:
                each["data"] = None  # optional in the protocol, but not in the driver's type
            ServiceStats.from_dict(stats)

    asyncio.run(scenario())


# Sharing, back-pressure, drain


def test_processes_of_one_name_share_the_load() -> None:
    taken = [0, 0]

    def counting(which: int) -> Endpoint:
        async def handler(request: Request) -> bytes:
            taken[which] += 1
            return b"{}"

        return endpoint(handler)

    async def scenario() -> None:
        async with listener([counting(0)]), listener([counting(1)]), client() as plugin:
            await asyncio.gather(*(ask(plugin, "tested.a.echo") for _ in range(200)))
        assert sum(taken) == 200 and min(taken) > 20

    asyncio.run(scenario())


def test_work_in_flight_is_bounded_and_nothing_is_lost() -> None:
    now, most = 0, 0

    async def handler(request: Request) -> bytes:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await loop_turns(5)
        now -= 1
        return request.data

    async def scenario() -> None:
        async with listener([endpoint(handler)], in_flight_max=4), client() as plugin:
            answers = await asyncio.gather(
                *(ask(plugin, "tested.a.echo", number) for number in range(100))
            )
        assert answers == list(range(100)) and most == 4

    asyncio.run(scenario())


def test_queued_requests_keep_their_order_and_yield_to_the_loop() -> None:
    """All queued requests were started at once when a slot became free, and later ones overtook the
    rest."""
    gate = asyncio.Event()
    order: list[int] = []
    turns: list[int] = []

    async def handler(request: Request) -> bytes:
        number = json.loads(request.data)
        if number == 0:
            await gate.wait()
        order.append(number)
        return request.data

    async def scenario() -> None:
        async with listener([endpoint(handler)], in_flight_max=1) as serving, client() as plugin:
            asked = [
                asyncio.ensure_future(ask(plugin, "tested.a.echo", number)) for number in range(200)
            ]
            await until(lambda: serving.requests.waiting == 199)
            gate.set()
            while len(order) < 200:
                turns.append(len(order))
                await asyncio.sleep(0)
            assert await asyncio.gather(*asked) == list(range(200))
        assert order == list(range(200))
        assert max(b - a for a, b in pairwise(turns)) <= 64

    asyncio.run(scenario())


def test_requests_beyond_the_queue_are_rejected_at_once() -> None:
    gate = asyncio.Event()
    refused: list[str] = []

    def refuse(subject: str, reply: str) -> bool:
        refused.append(subject)
        return reply.startswith("_INBOX.")

    async def handler(request: Request) -> bytes:
        await gate.wait()
        return b'{"success":true}'

    async def scenario() -> None:
        full = Endpoint(name="echo", subject="tested.*.echo", handler=handler, rejected=refuse)
        async with listener([full], in_flight_max=1, pending_max=2), client() as plugin:
            with capture_logs() as logs:
                asked = [asyncio.ensure_future(ask(plugin, "tested.a.echo")) for _ in range(10)]
                try:
                    await until(lambda: len(refused) >= 7)
                finally:
                    gate.set()
                answers = await asyncio.gather(*asked)
        codes = [answer.get("error_code") for answer in answers]
        assert len(refused) == 7  # one is at work, and two wait
        assert codes.count("RATE_LIMITED") == len(refused) and codes.count(None) == 10 - len(
            refused
        )
        overflows = [line for line in logs if line["event"] == "nats overflow"]
        assert 1 <= len(overflows) <= 2 and overflows[0]["rejected"] == 1  # at most one in a second

    asyncio.run(scenario())


def test_a_drain_finishes_accepted_requests_and_accepts_no_more() -> None:
    gate = asyncio.Event()
    taken = 0

    async def handler(request: Request) -> bytes:
        nonlocal taken
        taken += 1
        await gate.wait()
        return b'{"success":true}'

    async def scenario() -> None:
        async with client() as plugin, connect(nats_server().url) as connection:
            serving = NatsListener(connection, [endpoint(handler)], name="tested", version="1.0.0")
            await serving.start()
            asked = [asyncio.ensure_future(ask(plugin, "tested.a.echo")) for _ in range(20)]
            await until(lambda: taken == 20)
            draining = asyncio.ensure_future(serving.drain())
            await until(lambda: not connection.handlers)  # the server has unsubscribed it
            assert not draining.done()
            with pytest.raises(NoRespondersError):
                await plugin.request("tested.a.echo", b"", timeout=30)
            gate.set()
            await draining
            await serving.drain()
            assert [answer["success"] for answer in await asyncio.gather(*asked)] == [True] * 20

    asyncio.run(scenario())


def test_spawned_tasks_stop_with_the_listener_and_has_listener_detects_subscribers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[str] = []
    heard: list[bool] = []

    async def handler(request: Request) -> bytes:
        async def push() -> None:
            try:
                await request.publisher.publish("tested.pushed", b"change")
                heard.append(await request.publisher.has_listener("tested.pushed", b"anybody?"))
                monkeypatch.setattr("keyhouse.nats.listener.HAS_LISTENER_SECONDS", 30)
                heard.append(await request.publisher.has_listener("tested.nobody", b"anybody?"))
                await asyncio.Event().wait()
            finally:
                ended.append("push")

        request.publisher.spawn(push())
        return b"{}"

    async def scenario() -> None:
        async with client() as plugin:
            pushed = await plugin.subscribe("tested.pushed")
            async with listener([endpoint(handler)]):
                await ask(plugin, "tested.a.echo")
                assert (await pushed.next_msg(timeout=30)).data == b"change"
                await until(lambda: len(heard) == 2)
                assert ended == []
            assert ended == ["push"] and heard == [True, False]

    asyncio.run(scenario())


def test_a_task_that_cannot_publish_is_logged_without_a_traceback() -> None:
    async def handler(request: Request) -> bytes:
        request.publisher.spawn(request.publisher.publish("tested.pushed", b"x" * 2**21))
        return b"{}"

    async def scenario() -> None:
        with capture_logs() as logs:
            async with listener([endpoint(handler)]), client() as plugin:
                await ask(plugin, "tested.a.echo")
                await until(lambda: any(line["event"] == "nats push lost" for line in logs))
        [lost] = [line for line in logs if line["event"] == "nats push lost"]
        assert lost["log_level"] == "warning" and "exc_info" not in lost

    asyncio.run(scenario())


def test_the_listener_serves_again_after_the_server_returns(tmp_path: Path) -> None:
    async def scenario(server: NatsServer) -> None:
        with capture_logs() as logs:
            async with (
                connect(server.url) as connection,
                NatsListener(connection, [endpoint(echo)], name="tested", version="1.0.0"),
            ):
                server.kill()
                await until(lambda: any(line["event"] == "nats disconnected" for line in logs))
                server.start()
                await until(lambda: any(line["event"] == "nats reconnected" for line in logs))
                await connection.flush_all()  # the server has received the subscriptions
                plugin = await nats.connect(server.url)
                assert (await ask(plugin, "tested.a.echo", b"again"))["data"] == "again"
                assert (await ask(plugin, "$SRV.PING.tested"))["name"] == "tested"
                await plugin.close()

    with own_server(tmp_path) as server:
        asyncio.run(scenario(server))


def test_an_unreachable_server_is_reported_without_the_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("keyhouse.nats.connection.CONNECT_SECONDS", 0.5)

    async def scenario() -> None:
        with pytest.raises(UnavailableError) as refused:
            async with connect("nats://ann:secret@127.0.0.1:1"):
                raise AssertionError("unreachable")
        assert "127.0.0.1:1" in str(refused.value) and "secret" not in str(refused.value)

    asyncio.run(scenario())


def test_a_long_outage_does_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reconnecting is tried twice a second, and each attempt was logged."""

    async def scenario() -> list[str]:
        state = ConnectionLog(NatsClient())
        state.connected = True
        for reason in ("refused", "refused", "refused", "no such host", "no such host"):
            await state.error(OSError(reason))
        monkeypatch.setattr("keyhouse.nats.connection.REPEAT_LOG_SECONDS", 0)
        await state.error(OSError("no such host"))
        return [line["reason"] for line in logs]

    with capture_logs() as logs:
        assert asyncio.run(scenario()) == ["refused", "no such host", "no such host"]


def test_a_tenant_named_in_the_body_does_not_wait_for_another_one() -> None:
    """All bodies were of one tenant: once its places were taken, all others waited."""

    async def scenario() -> None:
        release = asyncio.Event()
        waiting = 0

        async def handler(request: Request) -> bytes:
            nonlocal waiting
            if request.data == b"flood":
                waiting += 1
                await release.wait()
            return b"{}"

        bodies = Endpoint(
            name="bodies", subject="tested.*", handler=handler, tenant_of_body=bytes.decode
        )
        async with listener([bodies]), client() as plugin:
            for _ in range(2 * NATS_TENANT_IN_FLIGHT_MAX):
                await plugin.publish("tested.echo", b"flood")
            await until(lambda: waiting == NATS_TENANT_IN_FLIGHT_MAX)
            assert await ask(plugin, "tested.echo", b"other") == {}
            assert waiting == NATS_TENANT_IN_FLIGHT_MAX, "the others of the flood are pending"
            release.set()

    asyncio.run(scenario())


def test_many_names_in_bodies_leave_no_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keyhouse.nats.listener.TENANTS_CACHED", 10)

    async def scenario() -> None:
        bodies = Endpoint(
            name="bodies", subject="tested.*", handler=echo, tenant_of_body=bytes.decode
        )
        async with listener([bodies]) as served, client() as plugin:
            for number in range(50):
                await ask(plugin, "tested.echo", b"%d" % number)
            assert len(served.requests) <= 10

    asyncio.run(scenario())
