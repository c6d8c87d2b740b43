"""One bucket: its stream in JetStream, and the mirror that serves reads.

A bucket is an ordinary KV bucket. One that another program created is used as it is and given the
features it lacks: atomic batches, per-message TTL, markers for rows that the server expires, and
the `$KEYHOUSE` subjects. Reading and watching need none of them, so a bucket is changed by the
first commit, and created by the first commit or watch.

| state    | meaning                               | next                                        |
|----------|---------------------------------------|---------------------------------------------|
| UNKNOWN  | not found yet, or deleted since       | READABLE: found. WRITABLE: opened to write  |
| READABLE | exists; the feed fills the mirror     | WRITABLE: opened to write. UNKNOWN: deleted |
| WRITABLE | its stream also has what commits need | UNKNOWN: deleted                            |
"""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum, auto
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.feed import Feed
from keyhouse.engines.jetstream.layout import BucketNames, RowKey
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.mirror import Mirror, MirrorState
from keyhouse.engines.jetstream.retry import TIMEOUT_SECONDS, until_available
from keyhouse.engines.jetstream.settings import Settings, parse
from keyhouse.engines.jetstream.value_cache import ValueCache
from keyhouse.errors import ClosedError, UnavailableError, UsageError

BEHIND_SECONDS: Final = 1.0
"""Time to wait for the mirror before asking the stream whether the message still exists."""

MARKER_NANOSECONDS: Final = 10 * 365 * 24 * 3_600 * 1_000_000_000
"""The server keeps its own markers for ten years: the sweep prunes them like other tombstones."""

SPACE_METADATA: Final = "keyhouse-space"
"""Metadata member of a bucket that holds one space: the space's name."""


class BucketState(Enum):
    UNKNOWN = auto()
    READABLE = auto()
    WRITABLE = auto()


class Bucket:
    def __init__(
        self, connection: Connection, names: BucketNames, settings: Settings, clock: Clock
    ) -> None:
        self.connection = connection
        self.names = names
        self.mirror: Mirror
        self.mirrors = 0
        """The number of mirrors so far: a reload replaces the mirror."""
        self.acknowledged = 0
        """The newest sequence that the server acknowledged. Reads wait for it (read your writes).
        """
        self.message_bytes_max = 0
        """Limit for a message with its headers, as configured on the bucket; 0: no limit."""
        self._settings = settings
        self._clock = clock
        self.feed = Feed(connection, names, clock, self._renew)
        self._state = BucketState.UNKNOWN
        self._closed = False
        self._is_clustered = False
        self._lock = asyncio.Lock()
        self._shared_sync = _SingleFlight(lambda: until_available(self.sync))

    async def open(self, *, writing: bool = False) -> bool:
        """Return whether the bucket exists, after loading its mirror. Creates it for `writing`."""
        if self._state is BucketState.UNKNOWN or (
            writing and self._state is not BucketState.WRITABLE
        ):
            async with self._lock:
                await until_available(lambda: self._prepare(writing))
        if self._exists and self.mirror.state is not MirrorState.SERVING:
            await self.wait_live()
        return self._exists

    async def refresh(self) -> bool:
        """Wait until the mirror holds what a read must see; return whether the bucket exists."""
        if self._settings.fresh_reads:
            return await self._shared_sync.run()
        await self.wait_for(self.acknowledged)
        return True

    async def sync(self) -> bool:
        """Wait until the mirror holds every commit acknowledged to any client before this call."""
        info = await self._info()
        if info is None and self._is_clustered:  # a node that starts may not know it yet
            await asyncio.sleep(BEHIND_SECONDS)
            info = await self._info()
        if info is None:
            await self._on_deleted()
            return False
        if not self.feed.follow(info):
            await self.wait_live()
        await self.wait_for(max(info["state"]["last_seq"], self.acknowledged))
        return True

    async def wait_for(self, sequence: int) -> None:
        """Wait until the mirror has published everything up to `sequence`."""
        for _ in range(int(TIMEOUT_SECONDS / BEHIND_SECONDS)):
            if self.mirror.state is MirrorState.SERVING and self.mirror.position >= sequence:
                return
            await self.wait_live()
            try:
                async with asyncio.timeout(BEHIND_SECONDS):
                    await self.mirror.position_reached(sequence)
            except TimeoutError:
                await self.feed.settle(sequence)
        if self.mirror.position < sequence:
            raise UnavailableError(
                "The mirror of the bucket lags behind its stream; try again.",
                bucket=self.names.bucket,
            )

    async def value(self, entry: Entry) -> bytes | None:
        """Return the value of an entry, or None if the row has been written again since."""
        value = self.mirror.values.get(entry.sequence)
        if value is None:
            value = await self._fetch(entry.sequence)
            if value is not None:
                self.mirror.values.put(entry.sequence, value)
        return value

    async def reconcile(self, row_keys: list[RowKey]) -> None:
        """Remove rows from the mirror whose messages another program purged.

        Consumers are not notified of a purge, so the server and an up-to-date mirror can disagree.
        """
        position = self.mirror.position
        for row_key in row_keys:
            message = await self.last_message(self.names.row(*row_key))
            if message is None:
                self.mirror.remove_purged(row_key, position)

    async def last_message(self, subject: str) -> dict[str, Any] | None:
        """Return the newest message of a subject, read from the leader."""
        answer = await self.connection.api(
            f"STREAM.MSG.GET.{self.names.stream}", last_by_subj=subject
        )
        return None if answer is None else answer["message"]

    async def delete_if_own(self, space: str) -> bool:
        """Delete a bucket that Keyhouse created for this space alone; return whether it is gone."""
        info = await self._info()
        if info is not None:
            metadata = info["config"].get("metadata") or {}
            if self.names.space is None or metadata.get(SPACE_METADATA) != space:
                return False
            await self.connection.api(f"STREAM.DELETE.{self.names.stream}")
        await self._on_deleted()
        return True

    async def purge(self, subject: str, before: int) -> None:
        """Delete the messages of a subject, or of a pattern, with a sequence below `before`."""
        await self.connection.api(f"STREAM.PURGE.{self.names.stream}", filter=subject, seq=before)

    def loaded(self) -> tuple[int, int]:
        """Return how many messages the mirror has loaded, and how many it loads."""
        total = self.feed.target
        is_loaded = self.mirror.state is MirrorState.SERVING
        return total if is_loaded else min(self.mirror.delivered, total), total

    def on_disconnect(self) -> None:
        """Restart the feed: the connection was lost."""
        self.feed.restart()

    async def close(self) -> None:
        self._closed = True
        await self.feed.close()
        self.mirror.close()

    @property
    def _exists(self) -> bool:
        return self._state is not BucketState.UNKNOWN

    def _renew(self) -> Mirror:
        self.mirrors += 1
        self.mirror = Mirror(ValueCache(self._settings.values_bytes_max))
        return self.mirror

    async def _info(self) -> dict[str, Any] | None:
        info = await self.connection.api(f"STREAM.INFO.{self.names.stream}")
        if info is not None:
            self.message_bytes_max = max(0, info["config"].get("max_msg_size", 0))
            self._is_clustered = "name" in (info.get("cluster") or {})
        return info

    async def _prepare(self, writing: bool) -> None:
        info = await self._info()
        if info is None and not writing:
            return
        if writing:
            before = None if info is None else info["config"]
            wanted = self._wanted(before)
            if wanted != before:
                await self.connection.api(
                    f"STREAM.{'CREATE' if before is None else 'UPDATE'}.{self.names.stream}",
                    **wanted,
                )
                if self._exists:
                    self.feed.restart()
            self._state = BucketState.WRITABLE
        elif self._state is BucketState.UNKNOWN:
            self._state = BucketState.READABLE
        self.feed.start()

    def _wanted(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """Return the stream configuration that commits need; other programs' settings are kept."""
        if before is None:
            before = {
                "name": self.names.stream,
                "subjects": [],
                "storage": "file",
                "retention": "limits",
                "discard": "new",
                "max_msgs_per_subject": 1,
                "num_replicas": self._settings.replicas,
                "deny_delete": True,
                "allow_direct": True,
            }
        if before["num_replicas"] != self._settings.replicas:
            raise UsageError(
                "The bucket has a different number of replicas; change it with the nats CLI, or set"
                " replicas= in the URL to its number.",
                bucket=self.names.bucket,
                replicas=before["num_replicas"],
                configured=self._settings.replicas,
            )
        metadata = dict(before.get("metadata") or {})
        if self.names.space is not None:
            metadata[SPACE_METADATA] = self.names.space
        return {
            **before,
            "subjects": list(dict.fromkeys([*before["subjects"], *self.names.all])),
            "allow_atomic": True,
            "allow_msg_ttl": True,
            "allow_rollup_hdrs": True,
            "subject_delete_marker_ttl": MARKER_NANOSECONDS,
            "metadata": metadata,
        }

    async def wait_live(self) -> None:
        """Wait until the feed is live: the mirror is loaded and follows the stream."""
        while not self.feed.live.is_set():
            delivered = self.mirror.delivered
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await self.feed.live.wait()
            except TimeoutError:
                if delivered == self.mirror.delivered:
                    raise UnavailableError(
                        "The bucket cannot be read at the moment; try again.",
                        bucket=self.names.bucket,
                    ) from None
        if self._closed:
            raise ClosedError("The engine is closed.")

    async def _on_deleted(self) -> None:
        """Start over: another program deleted the bucket."""
        async with self._lock:
            await self.feed.stop()
            self.mirror.close()
            self._state = BucketState.UNKNOWN
            self.acknowledged = 0
            self.feed = Feed(self.connection, self.names, self._clock, self._renew)

    async def _fetch(self, sequence: int) -> bytes | None:
        value = await self.connection.get_direct(self.names.stream, sequence)
        if value is not None:
            return value
        answer = await self.connection.api(f"STREAM.MSG.GET.{self.names.stream}", seq=sequence)
        return None if answer is None else b64decode(answer["message"].get("data", ""))


class _SingleFlight:
    """Coalesces concurrent calls. Callers that arrive while one call runs share the next one, never
    the running call: it may have started before their own request."""

    def __init__(self, call: Callable[[], Awaitable[bool]]) -> None:
        self._call = call
        self._running: asyncio.Task[bool] | None = None
        self._next: asyncio.Task[bool] | None = None

    async def run(self) -> bool:
        if self._next is None:
            self._next = asyncio.ensure_future(self._run_after(self._running))
        return await asyncio.shield(self._next)

    async def _run_after(self, before: asyncio.Task[bool] | None) -> bool:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._running, self._next = self._next, None
        return await self._call()


async def delete_buckets(url: str, spaces: Iterable[str]) -> None:
    """Delete the buckets of these spaces, for callers that created temporary ones."""
    settings = parse(url)
    connection = Connection(settings, on_disconnect=lambda: None)
    await connection.open()
    try:
        for stream in sorted({settings.layout.names(space).stream for space in spaces}):
            await connection.api(f"STREAM.DELETE.{stream}")
    finally:
        await connection.close()
