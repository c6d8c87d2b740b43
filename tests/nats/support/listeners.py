"""A listener on a real server, and a client like any plugin's."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import nats
from nats.aio.client import Client
from nats.aio.subscription import Subscription

from keyhouse.nats.connection import connect
from keyhouse.nats.endpoint import Endpoint
from keyhouse.nats.listener import NatsListener
from tests.support.nats_servers import nats_server


@asynccontextmanager
async def client() -> AsyncIterator[Client]:
    connection = await nats.connect(nats_server().url)
    try:
        yield connection
    finally:
        await connection.close()


async def subscribed(connection: Client, subject: str) -> Subscription:
    """Subscribe, and wait until the server knows it. One flush is not enough: nats-py sends its
    ping ahead of the pending subscription."""
    subscription = await connection.subscribe(subject)
    await connection.flush()
    await connection.flush()
    return subscription


@asynccontextmanager
async def listener(endpoints: Sequence[Endpoint], **options: Any) -> AsyncIterator[NatsListener]:
    async with (
        connect(nats_server().url) as connection,
        NatsListener(connection, endpoints, name="tested", version="1.2.3", **options) as serving,
    ):
        yield serving


async def ask(connection: Client, subject: str, body: object = b"") -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await connection.request(subject, data, timeout=30)
    return json.loads(answer.data)
