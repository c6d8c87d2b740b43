"""One bucket: its stream as JetStream has it, and the mirror that is read.

A bucket is an ordinary KV bucket, and one that another program made is taken as it is and given what it lacks: atomic
batches, a time to live for each message, markers for what the server expires, and the subjects of `$KEYHOUSE`. Reading
needs none of that, so a bucket is changed, or made, by the first commit (or watch), not before.
"""

import asyncio
from base64 import b64decode
from typing import Any, Final

from keyhouse.clock import Clock
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.feed import Feed
from keyhouse.engines.jetstream.layout import BucketNames, RowKey
from keyhouse.engines.jetstream.message import Entry
from keyhouse.engines.jetstream.mirror import Mirror
from keyhouse.engines.jetstream.retry import TIMEOUT_SECONDS, until_available
from keyhouse.engines.jetstream.settings import Settings
from keyhouse.engines.jetstream.value_cache import ValueCache
from keyhouse.errors import ClosedError, UnavailableError, UsageError

BEHIND_SECONDS: Final = 1.0
"""How long the mirror may lack what the stream has, before we ask whether it is still to come."""

MARKER_NANOSECONDS: Final = 10 * 365 * 24 * 3_600 * 1_000_000_000
"""The server's own markers stay for ten years: the sweep prunes them as it does our own."""

SPACE_METADATA: Final = "keyhouse-space"
"""In the metadata of a space's own bucket: what the space is called."""


class Bucket:
    def __init__(
        self, connection: Connection, names: BucketNames, settings: Settings, clock: Clock
    ) -> None:
        self.connection = connection
        self.names = names
        self.mirror: Mirror
        self.acknowledged = 0
        """The newest sequence that we were told is written. Reads wait for it: one reads what one wrote."""
        self.message_bytes_max = 0
        """With its headers, as somebody may have configured it; 0: no limit of the bucket's own."""
        self._settings = settings
        self._clock = clock
        self._feed = Feed(connection, names, clock, self._renew)
        self._found = False
        self._fit = False
        self._closed = False
        self._lock = asyncio.Lock()
        self._sync = _Sync(self)

    async def open(self, *, writing: bool = False) -> bool:
        """Whether it is there, with its mirror filled. It is, after this, for `writing`."""
        if not (self._fit if writing else self._found):
            async with self._lock:
                await until_available(lambda: self._prepare(writing))
        if self._found:
            await self.wait_live()
        return self._found

    async def refresh(self) -> bool:
        """Wait until the mirror shows what a read must see; whether the bucket is (still) there."""
        if self._settings.fresh_reads:
            return await self._sync.join()
        await self.wait_for(self.acknowledged)
        return True

    async def sync(self) -> bool:
        """Wait until the mirror shows every commit that anyone was told of before this call."""
        info = await self._info()
        if info is None:  # it was there: ask again before we say that it is not
            await asyncio.sleep(BEHIND_SECONDS)
            info = await self._info()
        if info is None:
            await self._on_deleted()
            return False
        await self.wait_for(max(info["state"]["last_seq"], self.acknowledged))
        return True

    async def wait_for(self, sequence: int) -> None:
        """Wait until the mirror shows everything up to there."""
        for _ in range(int(TIMEOUT_SECONDS / BEHIND_SECONDS)):
            await self.wait_live()
            if self.mirror.position >= sequence:
                return
            try:
                async with asyncio.timeout(BEHIND_SECONDS):
                    await self.mirror.position_reached(sequence)
            except TimeoutError:
                await self._feed.settle(sequence)
        if self.mirror.position < sequence:
            raise UnavailableError(
                "The mirror of the bucket is behind; try again.", bucket=self.names.bucket
            )

    async def value(self, entry: Entry) -> bytes | None:
        """The value of an entry; `None` when the row has been written again meanwhile."""
        value = self.mirror.values.get(entry.sequence)
        if value is None:
            value = await self._fetch(entry.sequence)
            if value is not None:
                self.mirror.values.put(entry.sequence, value)
        return value

    async def reconcile(self, row_keys: list[RowKey]) -> None:
        """Ask the server for the sequence of each row, where it and the mirror do not agree though both are up to date:
        somebody has purged a message, which no consumer is told of."""
        position = self.mirror.position
        for row_key in row_keys:
            found = await self.last_message(self.names.row(*row_key))
            if found is None:
                self.mirror.remove_purged(row_key, position)

    async def last_message(self, subject: str) -> dict[str, Any] | None:
        """The newest message of a subject, from the leader."""
        found = await self.connection.api(
            f"STREAM.MSG.GET.{self.names.stream}", last_by_subj=subject
        )
        return None if found is None else found["message"]

    def on_disconnect(self) -> None:
        """The connection is lost."""
        self._feed.restart()

    async def close(self) -> None:
        self._closed = True
        await self._feed.stop()
        self._feed.live.set()
        self.mirror.close()

    def _renew(self) -> Mirror:
        self.mirror = Mirror(ValueCache(self._settings.values_bytes_max))
        return self.mirror

    async def _info(self) -> dict[str, Any] | None:
        info = await self.connection.api(f"STREAM.INFO.{self.names.stream}")
        if info is not None:
            self.message_bytes_max = max(0, info["config"].get("max_msg_size", 0))
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
                if self._found:
                    self._feed.restart()
            self._fit = True
        self._found = True
        self._feed.start()

    def _wanted(self, before: dict[str, Any] | None) -> dict[str, Any]:
        """The stream's configuration as we need it; all that another program has set is kept."""
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
                "The bucket has another number of replicas; change it with the nats tool, or name the number that it has.",
                bucket=self.names.bucket,
                replicas=before["num_replicas"],
                named=self._settings.replicas,
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
        """Wait until the mirror is fed, and filled."""
        while not self._feed.live.is_set():
            delivered = self.mirror.delivered
            try:
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await self._feed.live.wait()
            except TimeoutError:
                if delivered == self.mirror.delivered:
                    raise UnavailableError(
                        "The bucket can't be read at this moment; try again.",
                        bucket=self.names.bucket,
                    ) from None
        if self._closed:
            raise ClosedError("The engine is closed.")

    async def _on_deleted(self) -> None:
        """Somebody has deleted the bucket."""
        async with self._lock:
            await self._feed.stop()
            self.mirror.close()
            self._found = self._fit = False
            self.acknowledged = 0
            self._feed = Feed(self.connection, self.names, self._clock, self._renew)

    async def _fetch(self, sequence: int) -> bytes | None:
        message = await self.connection.get_direct(self.names.stream, sequence)
        if message is not None:
            return message.data
        found = await self.connection.api(f"STREAM.MSG.GET.{self.names.stream}", seq=sequence)
        return None if found is None else b64decode(found["message"].get("data", ""))


class _Sync:
    """Many that ask at once ask once: all that come while one question is under way share the next."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._next: asyncio.Task[bool] | None = None
        self._under_way: asyncio.Task[bool] | None = None

    async def join(self) -> bool:
        if self._next is None:
            self._next = asyncio.ensure_future(self._ask(self._under_way))
        return await asyncio.shield(self._next)

    async def _ask(self, before: asyncio.Task[bool] | None) -> bool:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self._under_way, self._next = self._next, None
        return await until_available(self._bucket.sync)
