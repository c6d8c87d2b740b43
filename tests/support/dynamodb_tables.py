"""DynamoDB tables on the process's shared server, and ways to intercept requests."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any

from aiobotocore.session import AioSession, get_session
from botocore.exceptions import ClientError, ConnectTimeoutError

from keyhouse.engine import Batch, Put, Span
from keyhouse.engines.dynamodb import DynamoDBEngine, Layout, Settings
from keyhouse.testing.servers.dynamodb import ACCESS_KEY, REGION, dynamodb_server


def settings(
    *,
    endpoint: str | None = None,
    layout: Layout | None = None,
    create: bool = True,
    native_ttl: bool = False,
) -> Settings:
    """Native TTL is off: it uses the real time, and tests use manual clocks."""
    return Settings(
        table=f"t{secrets.token_hex(8)}",
        region=REGION,
        endpoint=endpoint or dynamodb_server().endpoint,
        layout=layout or Layout(),
        create=create,
        native_ttl=native_ttl,
        access_key_id=ACCESS_KEY,
        secret_access_key=ACCESS_KEY,
    )


@asynccontextmanager
async def plain_client() -> AsyncIterator[Any]:
    """Return a plain driver client, as another program would use it."""
    async with _session().create_client(
        "dynamodb",
        region_name=REGION,
        endpoint_url=dynamodb_server().endpoint,
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=ACCESS_KEY,
    ) as client:
        yield client


@cache
def _session() -> AioSession:
    """The session of this process: another one would read the description of the service again."""
    return get_session()


def client_error(code: str, *reasons: str) -> ClientError:
    """Return an error as the driver raises it."""
    response: Any = {
        "Error": {"Code": code, "Message": "for a test"},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    if reasons:
        response["CancellationReasons"] = [{"Code": reason} for reason in reasons]
    return ClientError(response, "ForATest")


Step = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]


class InterceptingClient:
    """A proxy of the driver's client: each planned step replaces the next call of that name."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.steps: dict[str, list[Step]] = {}
        self.calls: list[str] = []

    def plan(self, name: str, *steps: Step) -> None:
        self.steps.setdefault(name, []).extend(steps)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def call(**parameters: Any) -> Any:
            self.calls.append(name)
            if self.steps.get(name):
                return await self.steps[name].pop(0)(lambda: method(**parameters))
            return await method(**parameters)

        return call


def raising(error: Exception) -> Step:
    async def step(call: Callable[[], Awaitable[Any]]) -> Any:
        raise error

    return step


def first(work: Callable[[], Awaitable[object]]) -> Step:
    """Run `work`, then the original call."""

    async def step(call: Callable[[], Awaitable[Any]]) -> Any:
        await work()
        return await call()

    return step


class Proxy:
    """A loopback proxy in front of the server. While `cut`, requests arrive but replies are
    dropped."""

    def __init__(self) -> None:
        self.cut = 0
        self.requests_cut = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(_current_task())
        host, port = dynamodb_server().endpoint.removeprefix("http://").split(":")
        server_reader, server_writer = await asyncio.open_connection(host, int(port))
        sending = asyncio.ensure_future(self._send(reader, server_writer))
        try:
            with suppress(ConnectionError):
                while data := await server_reader.read(65_536):
                    if self.cut:
                        self.cut -= 1
                        self.requests_cut += 1
                        break
                    writer.write(data)
                    await writer.drain()
        finally:
            sending.cancel()
            for each in (writer, server_writer):
                each.close()

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                writer.write(data)
                await writer.drain()


def _current_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


ALL = Span()
UNREACHED = ConnectTimeoutError(endpoint_url="http://host")
NOWHERE = "http://127.0.0.1:9"
THROTTLED = client_error("ProvisionedThroughputExceededException")
IN_THE_WAY = client_error("TransactionCanceledException", "None", "TransactionConflict")


@asynccontextmanager
async def opened(where: Settings | None = None, **options: Any) -> AsyncIterator[DynamoDBEngine]:
    engine = await DynamoDBEngine.open(where or settings(), **options)
    try:
        yield engine
    finally:
        await engine.close()


def intercept(engine: DynamoDBEngine) -> InterceptingClient:
    stand = InterceptingClient(engine.client.driver)
    engine.client.driver = stand
    return stand


async def put(
    engine: DynamoDBEngine,
    *keys: str,
    value: bytes = b"1",
    expires: int | None = None,
    space: str = "s",
) -> int:
    puts = tuple(Put(key, value, expires) for key in keys)
    revision = await engine.commit(space, Batch(puts=puts))
    assert revision is not None
    return revision


async def value(engine: DynamoDBEngine, key: str) -> bytes | None:
    (row,) = await engine.read("s", [key])
    return None if row is None else row.value


def scenario(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type]

    run.__name__ = getattr(test, "__name__", "test")
    return run
