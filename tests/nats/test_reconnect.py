"""A connection that the server ends with a reason: the service connects again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import nats
import pytest
from structlog.testing import capture_logs

from keyhouse.errors import UnavailableError
from keyhouse.nats.connection import connect
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.nats.listener import NatsListener
from keyhouse.serve.server import nats_check
from tests.nats.support.listeners import ask
from tests.support.nats_server_configs import ConfiguredServer, configured
from tests.support.polling import until


async def echo(request: Request) -> bytes:
    return b'{"success": true}'


def users(password: str) -> dict[str, Any]:
    return {"users": [{"user": "keyhouse", "password": password}, {"user": "ann", "password": "x"}]}


async def until_rejected(ready: Callable[[], Awaitable[None]]) -> None:
    """Wait until the check gives the reason: the end of the connection is noticed before it, and
    each try has its own error."""

    async def is_rejected() -> bool:
        with pytest.raises(UnavailableError) as unavailable:
            await ready()
        return "rejects the connection" in str(unavailable.value)

    await until(is_rejected)


def test_a_service_reconnects_after_its_password_was_changed_and_set_back(tmp_path: Path) -> None:
    """The server ends connections of a user whose password changes with an error. The driver then
    closed its client for good: the service answered nothing until it was started again."""

    async def scenario(server: ConfiguredServer) -> None:
        def reload(password: str) -> None:
            server.more["authorization"] = users(password)
            server.reload()

        endpoint = Endpoint(name="echo", subject="tested.*.echo", handler=echo)
        url = server.address("keyhouse:old@")
        with capture_logs() as logs:
            async with (
                connect(url) as connection,
                connect(url, name="second", is_further=True) as second,
                NatsListener(connection, [endpoint], name="tested", version="1.2.3"),
            ):
                ready = nats_check(connection, [second])
                for _ in range(2):
                    logs.clear()
                    reload("new")
                    await until(lambda: any("fix" in line for line in logs))
                    await until_rejected(ready)
                    reload("old")
                    await until(lambda: connection.is_connected and second.is_connected)
                    await ready()
                    caller = await nats.connect(server.address("ann:x@"))
                    assert await ask(caller, "tested.a.echo") == {"success": True}
                    await caller.close()
                    shown = [line for line in logs if line["log_level"] != "debug"]
                    assert [line["event"] for line in shown] == [
                        "nats disconnected",
                        "nats error",
                        "nats reconnected",
                    ]
                    assert all("authorization violation" in x["reason"].lower() for x in shown[:2])

    with configured(tmp_path, authorization=users("old")) as server:
        asyncio.run(scenario(server))


def test_a_lost_server_is_one_warning_by_its_own_reason(tmp_path: Path) -> None:
    """Each further connection logged a warning, and a second outage gave the reason of the first
    one."""

    async def scenario(server: ConfiguredServer) -> None:
        with capture_logs() as logs:
            async with connect(server.url) as first, connect(server.url, is_further=True) as second:
                server.kill()
                await until(lambda: not first.is_connected and not second.is_connected)
                server.start()
                await until(lambda: first.is_connected and second.is_connected)
                lost = [line for line in logs if line["log_level"] == "warning"]
                assert [line["event"] for line in lost][:1] == ["nats disconnected"]
                assert {line["reason"] for line in lost} <= {
                    "nats: unexpected EOF",
                    "[Errno 104] Connection reset by peer",
                    "[Errno 111] Connection refused",
                    "Connect call failed",
                } and len(lost) <= 3
                logs.clear()
                server.kill()
                await until(lambda: any(line["event"] == "nats disconnected" for line in logs))
                (again,) = [line for line in logs if line["event"] == "nats disconnected"][:1]
                assert "refused" not in again["reason"]

    with configured(tmp_path) as server:
        asyncio.run(scenario(server))
