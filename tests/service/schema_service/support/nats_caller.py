"""A schema as it is served over NATS, on a real server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from keyhouse.clock import ManualClock
from keyhouse.nats.connection import connect
from keyhouse.nats.listener import NatsListener
from keyhouse.schema import Schema
from keyhouse.service.schema_service.service import schema_service
from keyhouse.service.served_engine import ServedEngine
from keyhouse.service.spec import ServiceContext
from tests.service.schema_service.support.recipes import BOX
from tests.support.engine_openers import ALL
from tests.support.nats_servers import nats_server
from tests.support.threaded_service import SECRET


class Caller:
    def __init__(self, client: Any, schema: str, clock: ManualClock) -> None:
        self.client, self.clock = client, clock
        self._schema = schema

    async def __call__(self, operation: str, body: Any, space: str = "ann") -> Any:
        subject = f"keyhouse.{self._schema}.{space}.{operation}"
        reply = await self.client.request(subject, json.dumps(body).encode(), timeout=30)
        return json.loads(reply.data)


@asynccontextmanager
async def called(
    kind: str, folder: Path, schema: Schema = BOX, **settings: Any
) -> AsyncIterator[Caller]:
    """Serve a schema over NATS, on an engine of this kind."""
    clock = ManualClock()
    engine = await ALL[kind](folder)(clock)
    context = ServiceContext(
        engine=ServedEngine(engine),
        data=folder,
        metrics=CollectorRegistry(),
        settings={"jwt_secret": SECRET, "rate_per_second": 1e6, **settings},
    )
    spec: Any = schema_service(schema)(context)
    url = nats_server().url
    try:
        async with (
            connect(url) as serving,
            connect(url) as client,
            NatsListener(serving, spec.endpoints, name=spec.name, version="1.0.0"),
        ):
            yield Caller(client, schema.name, clock)
    finally:
        await engine.close()
