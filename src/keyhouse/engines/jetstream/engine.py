"""The engine on NATS JetStream: reads from a mirror of the bucket, writes through its writer.

Reads are linearizable by default: before a read uses the mirror, the stream's leader is asked for
its last sequence and the mirror is awaited; concurrent reads share one request. `reads=mirror` in
the URL skips the request: a client then reads its own writes, and those of others some milliseconds
late, or not at all during a network partition.

While the stream has no leader, fresh reads wait. As soon as there is one, a read needs no consumer
if the stream's last sequence is the mirror's; `reads=mirror` needs no server once it has loaded.

**Durability.** `durable` reports what the operator declared: JetStream does not tell a client how
it syncs. With `sync_interval: always`, an acknowledged commit is on the disk of the one server (R1)
or of a majority (R3). With the server's default it is in memory for up to two minutes: it survives
a killed process but not a power failure, and even with R3 one machine that loses power can make the
others lose the commit. Set `sync=always` where it applies, and `monitor=http://host:8222` to have
it verified.
"""

import asyncio
import json
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Final

from msgspec.structs import replace

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Batch, Capabilities, CaughtUp, Change, Page, Row, Span
from keyhouse.engines.jetstream.bucket import SPACE_METADATA, Bucket
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.erasure import erase
from keyhouse.engines.jetstream.layout import BucketNames, Layout
from keyhouse.engines.jetstream.pending import JetstreamCommit
from keyhouse.engines.jetstream.reader import page, rows
from keyhouse.engines.jetstream.retry import until_available
from keyhouse.engines.jetstream.settings import Settings, parse
from keyhouse.engines.jetstream.sweep import prune, sweep
from keyhouse.engines.jetstream.watch import MirrorLog
from keyhouse.engines.jetstream.writer import JetstreamWriter
from keyhouse.engines.retention import Kept, Retention
from keyhouse.engines.url import public_url
from keyhouse.engines.watch_loop import watch_log
from keyhouse.errors import (
    ClosedError,
    EngineError,
    UnavailableError,
    UnknownOutcomeError,
    UsageError,
)
from keyhouse.limits import CHANGES_KEPT

COMMIT_ROWS_MAX: Final = 999
"""An atomic batch holds up to 1,000 messages, including the one for the batch id."""

COMMIT_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""Key and value bytes of one commit: the server holds it in memory and replicates it as a whole."""

CAPABILITIES: Final = Capabilities(
    name="jetstream",
    durable=False,
    shared=True,
    commit_rows_max=COMMIT_ROWS_MAX,
    commit_bytes_max=COMMIT_BYTES_MAX,
)
"""`durable` follows the URL: see above."""


class JetstreamEngine:
    """See `keyhouse.engine` for each method's contract. It connects on first use."""

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock | None = None,
        changes_kept: Kept = CHANGES_KEPT,
    ) -> None:
        self.capabilities = replace(CAPABILITIES, durable=settings.sync_always)
        self._settings = settings
        self.clock = clock or SystemClock()
        self._retention = Retention(changes_kept, self.clock)
        self.connection: Connection | None = None
        self.buckets: dict[str, Bucket] = {}
        self._writers: dict[str, JetstreamWriter] = {}
        self._connecting = asyncio.Lock()
        self._closed = False

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Clock | None = None,
        changes_kept: Kept = CHANGES_KEPT,
        create: bool = True,
    ) -> "JetstreamEngine":
        """Open the engine for a URL (see `settings`). `create`: create a missing bucket."""
        return cls(
            replace(parse(url), create=create),
            clock=clock,
            changes_kept=changes_kept,
        )

    async def connect(self) -> None:
        """Connect to the server and check JetStream. The bucket is opened on first use."""
        with self._while_open():
            connection = await self._connected()
            bucket = self._settings.layout.bucket
            if bucket is None:
                await connection.find_jetstream("STREAM.NAMES")
            elif (
                not await connection.find_jetstream(f"STREAM.INFO.{BucketNames(bucket).stream}")
                and not self._settings.create
            ):
                raise UsageError(
                    "The bucket does not exist.", server=self._settings.address, bucket=bucket
                )

    def loaded(self) -> tuple[int, int]:
        """Return how many messages the mirrors have loaded, and how many they load."""
        counts = [bucket.loaded() for bucket in self.buckets.values()]
        return sum(loaded for loaded, _ in counts), sum(total for _, total in counts)

    async def read(
        self, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        with self._while_open():
            bucket = await self._bucket_of(space)
            if not await bucket.open() or not await bucket.refresh():
                return [None] * len(keys)
            return await rows(bucket, space, keys, self.clock)

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
        with self._while_open():
            bucket = await self._bucket_of(space)
            if not await bucket.open() or not await bucket.refresh():
                return Page([], False, 0)
            return await page(
                bucket, space, span, self.clock, limit=limit, reverse=reverse, keys_only=keys_only
            )

    async def commit(self, space: str, batch: Batch) -> int | None:
        with self._while_open():
            bucket = await self._bucket_of(space)
            await bucket.open(writing=True)
            return await self._writer(bucket).submit(JetstreamCommit(space, batch))

    async def watch(
        self, space: str, span: Span, *, since: int | None = None, caught_up: CaughtUp | None = None
    ) -> AsyncGenerator[Change, None]:
        with self._while_open():
            bucket = await self._bucket_of(space)
            if not await bucket.open():
                await bucket.open(writing=True)  # there is nothing to watch yet
            log = MirrorLog(bucket, space, span, self.clock, self._check_open)
            async with aclosing(watch_log(log, since, caught_up)) as changes:
                async for change in changes:
                    yield change

    async def sweep(self, *, limit: int) -> int:
        with self._while_open():
            swept = 0
            for bucket in await self._all_buckets(own=True):
                await bucket.open(writing=True)
                swept += await sweep(bucket, self._writer(bucket), self.clock, limit - swept)
                await prune(bucket, self.clock, self._retention)
            return swept

    async def forget(self, space: str, *, last: str | None = None) -> None:
        with self._while_open():
            bucket = await self._bucket_of(space)
            if await bucket.open():
                await erase(bucket, self._writer(bucket), space, last, self.clock)

    async def spaces(self) -> AsyncIterator[str]:
        with self._while_open():
            now = self.clock.now()
            for space in sorted(
                [
                    space
                    for bucket in await self._all_buckets()
                    for space in bucket.mirror.spaces(now)
                ]
            ):
                yield space

    async def close(self) -> None:
        self._closed = True
        async with self._connecting:
            await asyncio.gather(*(writer.stop() for writer in self._writers.values()))
            await asyncio.gather(*(bucket.close() for bucket in self.buckets.values()))
            if self.connection is not None:
                await self.connection.close()

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError("The engine is closed.")

    @contextmanager
    def _while_open(self) -> Iterator[None]:
        """Raise ClosedError for errors caused by a close, unless a write may have happened."""
        self._check_open()
        try:
            yield
        except UnknownOutcomeError:
            raise
        except EngineError:
            self._check_open()
            raise

    async def _bucket_of(self, space: str) -> Bucket:
        return self._bucket(await self._connected(), self._settings.layout.names(space))

    def _bucket(self, connection: Connection, names: BucketNames) -> Bucket:
        bucket = self.buckets.get(names.bucket)
        if bucket is None:
            self._check_open()
            bucket = self.buckets[names.bucket] = Bucket(
                connection, names, self._settings, self.clock
            )
        return bucket

    def _writer(self, bucket: Bucket) -> JetstreamWriter:
        writer = self._writers.get(bucket.names.bucket)
        if writer is None:
            self._check_open()
            writer = self._writers[bucket.names.bucket] = JetstreamWriter(bucket, self.clock)
        return writer

    async def _all_buckets(self, *, own: bool = False) -> list[Bucket]:
        """Return every bucket of this engine, its mirror up to date.

        `own`: without buckets that have the layout's prefix, but were only written by others.
        """
        connection = await self._connected()
        layout = self._settings.layout
        all_names = (
            [BucketNames(layout.bucket)]
            if layout.bucket is not None
            else await until_available(lambda: _find_buckets(connection, layout, own))
        )
        buckets = [self._bucket(connection, names) for names in all_names]
        return [bucket for bucket in buckets if await bucket.open() and await bucket.refresh()]

    async def _connected(self) -> Connection:
        if self.connection is None:
            async with self._connecting:
                self._check_open()
                if self.connection is None:
                    self.connection = await self._connect()
        return self.connection

    async def _connect(self) -> Connection:
        if self._settings.monitor is not None and self._settings.sync_always:
            await asyncio.to_thread(_check_sync, self._settings.monitor)
        connection = Connection(self._settings, on_disconnect=self._on_disconnect)
        await connection.open()
        return connection

    def _on_disconnect(self) -> None:
        for bucket in self.buckets.values():
            bucket.on_disconnect()


async def _find_buckets(connection: Connection, layout: Layout, own: bool) -> list[BucketNames]:
    """Return the buckets of this layout.

    They are those whose metadata names a space and, unless `own`, those that another program
    created with the layout's prefix. Without a prefix, any bucket of the server could be meant.
    """
    buckets: list[BucketNames] = []
    offset, total = 0, 1
    while offset < total:
        answer = await connection.api("STREAM.LIST", offset=offset, subject="$KV.>")
        if answer is None or not answer["streams"]:
            break
        for stream in answer["streams"]:
            stream_name: str = stream["config"]["name"]
            space = (stream["config"].get("metadata") or {}).get(SPACE_METADATA)
            if not space and layout.prefix and not own:
                before, _, space = stream_name.partition(f"KV_{layout.prefix}")
                space = None if before else space
            if space and (names := layout.names(space)).stream == stream_name:
                buckets.append(names)
        offset, total = offset + len(answer["streams"]), answer["total"]
    return buckets


def _check_sync(monitor: str) -> None:
    """Raise UsageError if the server does not sync as the URL states."""
    try:
        with urllib.request.urlopen(f"{monitor.rstrip('/')}/varz", timeout=5) as answer:
            state = json.load(answer)
    except (OSError, ValueError) as error:
        raise UnavailableError(
            "The NATS server's monitoring endpoint does not answer; check monitor= in the URL.",
            monitor=public_url(monitor),
        ) from error
    if not state.get("jetstream", {}).get("config", {}).get("sync_always", False):
        raise UsageError(
            "The NATS server acknowledges before it syncs; run it with sync_interval: always, or"
            " remove sync=always from the URL.",
            monitor=public_url(monitor),
        )
