"""The engine on two DynamoDB tables: reads by the reader, commits through the writer, watches
through the feed."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from functools import cache
from io import BytesIO
from typing import Any, Final

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from botocore.loaders import Loader, create_loader

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Batch, Capabilities, CaughtUp, Change, Page, Row, Span
from keyhouse.engines.dynamodb.client import Client
from keyhouse.engines.dynamodb.error_map import invalid_address, translate
from keyhouse.engines.dynamodb.feed import Feed
from keyhouse.engines.dynamodb.items import Items, is_live
from keyhouse.engines.dynamodb.plan import ROWS_MAX
from keyhouse.engines.dynamodb.reader import Reader
from keyhouse.engines.dynamodb.settings import Settings
from keyhouse.engines.dynamodb.sweeper import Sweeper
from keyhouse.engines.dynamodb.table import prepare
from keyhouse.engines.dynamodb.writer import DynamodbWriter
from keyhouse.engines.retention import Kept, kept_of
from keyhouse.limits import CHANGES_KEPT

CONNECT_SECONDS: Final = 3
ANSWER_SECONDS: Final = 10
"""Timeout of a request; after it, the outcome is unknown."""

CONNECTIONS: Final = 64

STREAM_BYTES_MIN: Final = 256 * 1_024

COMMIT_BYTES_MAX: Final = 2_900_000
"""DynamoDB's limit is 4 MB per transaction. The rest is for attribute names, the log entry, and
documents that are stored both flat and as bytes."""

CAPABILITIES: Final = Capabilities(
    name="dynamodb",
    durable=True,
    shared=True,
    commit_rows_max=ROWS_MAX,
    commit_bytes_max=COMMIT_BYTES_MAX,
)


class DynamoDBEngine:
    """See `keyhouse.engine` for each method's contract. It connects on first use."""

    capabilities: Final = CAPABILITIES

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        changes_kept: Kept = CHANGES_KEPT,
    ) -> None:
        table, items = settings.table, Items(settings.layout)
        self.clock = clock = clock or SystemClock()
        self.client = Client(lambda: _create_client_with_tables(settings), table)
        self._writer = DynamodbWriter(
            self.client, items, table, clock, committed=lambda space: self._feed.wake(space)
        )
        self._reader = Reader(self.client, items, table, clock, self._writer)
        self._feed = Feed(self._reader, clock)
        self._sweeper = Sweeper(
            self.client,
            items,
            table,
            clock,
            self._reader,
            self._writer,
            kept_of(changes_kept),
        )

    @classmethod
    async def open(
        cls, settings: Settings, *, clock: Clock | None = None, changes_kept: Kept = CHANGES_KEPT
    ) -> "DynamoDBEngine":
        """Open the tables; create missing ones and wait until they are active."""
        engine = cls(settings, clock=clock, changes_kept=changes_kept)
        await engine.connect()
        return engine

    async def connect(self) -> None:
        """Connect to DynamoDB and its tables, as the first call would."""
        await self.client.connect()

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        rows = await self._reader.rows(space, keys)
        now = self.clock.now()
        return [row if is_live(row := rows.get(key), now) else None for key in keys]

    async def scan(
        self,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        return await self._reader.scan(space, span, limit, reverse, keys_only)

    async def commit(self, space: str, batch: Batch) -> int | None:
        return await self._writer.commit(space, batch)

    def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        return self._feed.changes(space, span, since, caught_up)

    async def sweep(self, *, limit: int) -> int:
        return await self._sweeper.sweep(limit)

    async def forget(self, space: str, *, last: str | None = None) -> None:
        await self._writer.read_exclusively(space, lambda: self._sweeper.forget(space, last))
        self._writer.forget_head(space)

    def spaces(self) -> AsyncIterator[str]:
        return self._reader.spaces()

    async def close(self) -> None:
        await self._feed.close()
        await self._writer.stop()
        await self.client.close()


async def create_client(settings: Settings) -> Any:
    """Create the driver's client, not yet connected."""
    try:
        return await _client(settings)
    except ValueError as error:
        raise invalid_address(error, settings.table) from error
    except Exception as error:
        raise translate(error, settings.table) from error


async def _create_client_with_tables(settings: Settings) -> Any:
    client = await create_client(settings)
    try:
        await prepare(
            client,
            settings.table,
            settings.layout,
            create=settings.create,
            native_ttl=settings.native_ttl,
        )
    except BaseException:
        await client.close()
        raise
    return client


async def _client(settings: Settings) -> Any:
    """Create the client with the driver's own retries off (see `client.py`)."""
    config = AioConfig(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=ANSWER_SECONDS,
        max_pool_connections=CONNECTIONS,
        parameter_validation=False,
        retries={"total_max_attempts": 1},
    )
    session = get_session()
    session.register_component(
        "data_loader", _service_descriptions(session.get_config_variable("data_path"))
    )
    context = session.create_client(
        "dynamodb",
        region_name=settings.region,
        endpoint_url=settings.endpoint,
        aws_access_key_id=settings.access_key_id,
        aws_secret_access_key=settings.secret_access_key,
        config=config,
    )
    client = await context.__aenter__()
    client.meta.events.register("before-send.dynamodb", _stream_large)
    return client


@cache
def _service_descriptions(path: str | None) -> Loader:
    """Load the driver's description of the service once per process: it takes 0.1 s."""
    return create_loader(path)


def _stream_large(request: Any, **_: object) -> None:
    """Stream a large body: sent in one piece it would block the loop, and the client warns."""
    if isinstance(request.body, bytes) and len(request.body) > STREAM_BYTES_MIN:
        request.body = BytesIO(request.body)
