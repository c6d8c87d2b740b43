"""A request over NATS cannot make a service publish where the caller itself may not.

The endpoints are those of all services, so that new ones are tested without being listed here.
"""

import asyncio
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from keyhouse import open_engine
from keyhouse.engine import Engine
from keyhouse.nats.bus import Bus
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.nats.listener import NatsListener
from keyhouse.service.host import ServiceHost
from keyhouse.service.registry import has_service, load_service, system_names
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext, ServiceSpec
from tests.service.schema_service.support.recipes import BOX

SERVICES: Final = [*filter(has_service, system_names()), BOX.name]
SETTINGS: Final[dict[str, dict[str, Any]]] = {"rosey": {"payload_prefix": "rosey.payload"}}
PROTECTED: Final = (
    *("_INBOX_victim.abc", "_INBOX_mallory", "_INBOX_malloryx.a"),
    *("$JS.API.STREAM.DELETE.x", "$KV.bucket.key", "$SRV.PING", "$SYS.REQ.SERVER.PING"),
    *("keyhouse.control.keyhouse", "keyhouse.control.rosey", f"keyhouse.{BOX.name}.victim.put"),
)
"""Where a service may publish, on a server with the permissions of `keyhouse acl`, or nobody."""


class NoPublisher:
    """Fails the test if a handler publishes."""

    async def publish(self, subject: str, data: bytes, *, tenant: str | None = None) -> None:
        raise AssertionError(subject)

    async def has_listener(self, subject: str, data: bytes) -> bool:
        raise AssertionError(subject)

    def spawn(self, work: Any) -> None:
        raise AssertionError(work)


@pytest.mark.parametrize("system", SERVICES)
def test_no_reply_is_directed_to_a_subject_of_others_or_of_the_service(
    system: str, tmp_path: Path
) -> None:
    """A plugin with permissions could direct a reply to the control subject of the processes."""

    async def main() -> None:
        async with open_engine("memory:") as engine:
            spec = await _built(system, engine, tmp_path, Bus())
            for endpoint in spec.endpoints:
                if endpoint.public:
                    await check(endpoint, PROTECTED)

    asyncio.run(main())


def test_services_of_one_process_do_not_reply_to_the_subjects_of_each_other(tmp_path: Path) -> None:
    """A request of a served schema could name `db.changes.trivia.x`: its reply, with text of the
    caller, went to those who watch a plugin of rosey."""

    async def main() -> None:
        bus = Bus()
        async with open_engine("memory:") as engine:
            specs = [await _built(name, engine, tmp_path, bus) for name in SERVICES]
            for spec in specs:
                NatsListener(NO_CLIENT, spec.endpoints, name="x", version="1", replies=bus.replies)
            subjects = {
                each.subject.replace("*", "victim").replace(">", "x")
                for spec in specs
                for each in spec.endpoints
            }
            assert len(subjects) > 5, "systems have endpoints"
            subjects |= PUBLISHED
            for reply in subjects:
                assert not bus.replies.may_receive("mallory", reply), reply
            for endpoint in (each for spec in specs for each in spec.endpoints if each.public):
                await check(endpoint, subjects)

    asyncio.run(main())


class _NoClient:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


NO_CLIENT: Any = _NoClient()
PUBLISHED: Final = {
    *("db.changes.victim.x", f"keyhouse.changes.{BOX.name}.victim.x"),
    *("kryten.robot.command", "kryten.lifecycle.robot.startup", "kryten.playlist.event.default.x"),
    "kryten.events.cytube.channel.changemedia",
}
"""Subjects on which services publish or listen, beside their endpoints."""


async def _built(name: str, engine: Engine, data: Path, bus: Bus) -> ServiceSpec:
    service = schema_service(BOX) if name == BOX.name else load_service(name)
    context = ServiceContext(
        engine=engine,
        data=data,
        metrics=CollectorRegistry(),
        settings=SETTINGS.get(name, {}),
        host=ServiceHost(bus=bus),
    )
    built = service(context)
    return await built if inspect.isawaitable(built) else built


async def check(endpoint: Endpoint, protected: Iterable[str]) -> None:
    assert endpoint.rejected is not None, "it decides whether an overload is answered"
    bodies = (b"", b"[", json.dumps({"plugin_name": "mallory", "key": "k"}).encode())
    for subject in [*endpoint.operations.values(), endpoint.subject]:
        named = subject.replace("*", "mallory", 1).replace("*", "nosuch")
        own = (f"{endpoint.subject.partition('.*')[0]}.victim.set", named)
        for reply in (*protected, *own):
            for body in bodies:
                answer = await endpoint.handler(Request(named, body, reply, NoPublisher()))
                assert answer is None, (named, reply, body)
            assert not endpoint.rejected(named, reply), (named, reply)
        assert endpoint.rejected(named, "_INBOX.abc.def"), named
