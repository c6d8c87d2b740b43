"""A request over NATS cannot make a service publish where the caller itself may not.

The endpoints are those of all services, so that new ones are tested without being listed here.
"""

import asyncio
import inspect
import json
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry

from keyhouse import open_engine
from keyhouse.nats.endpoint import Endpoint, Request
from keyhouse.service.host import ServiceHost
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.spec import ServiceContext
from keyhouse.systems.registry import NAMES, has_service, load_service
from tests.service.schema_service.support.recipes import BOX

SERVICES: Final = [*filter(has_service, NAMES), BOX.name]
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
        async with ServiceHost() as host, open_engine("memory:") as engine:
            service = schema_service(BOX) if system == BOX.name else load_service(system)
            context = ServiceContext(
                engine=engine,
                data=tmp_path,
                metrics=CollectorRegistry(),
                settings=SETTINGS.get(system, {}),
                host=host,
            )
            built = service.build(context)
            spec = await built if inspect.isawaitable(built) else built
            for endpoint in spec.endpoints:
                if endpoint.public:
                    await check(endpoint)

    asyncio.run(main())


async def check(endpoint: Endpoint) -> None:
    assert endpoint.rejected is not None, "it decides whether an overload is answered"
    bodies = (b"", b"[", json.dumps({"plugin_name": "mallory", "key": "k"}).encode())
    for subject in [*endpoint.operations.values(), endpoint.subject]:
        named = subject.replace("*", "mallory", 1).replace("*", "nosuch")
        own = (f"{endpoint.subject.partition('.*')[0]}.victim.set", named)
        for reply in (*PROTECTED, *own):
            for body in bodies:
                answer = await endpoint.handler(Request(named, body, reply, NoPublisher()))
                assert answer is None, (named, reply, body)
            assert not endpoint.rejected(named, reply), (named, reply)
        assert endpoint.rejected(named, "_INBOX.abc.def"), named
