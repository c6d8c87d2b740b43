"""The event streams of a service: changes of records as Server-Sent Events, and events that a
service broadcasts.

Clients that watch the same records share one watch: see `event_feed`. A broadcast goes to all
clients of this process; a service sends it to the others over its bus.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from keyhouse.errors import BusyError, UsageError
from keyhouse.http.event_stream import EventStream, event_block
from keyhouse.schema import Record
from keyhouse.service.event_feed import (
    HEARTBEAT,
    EventEncoder,
    Feed,
    Subscription,
    UnreadableEncoder,
    Watched,
)
from keyhouse.service.limits import EVENT_STREAM_BYTES_MAX, EVENT_STREAMS_MAX
from keyhouse.service.push_pacer import PushPacer
from keyhouse.store import Event, Store

__all__ = ["EventHub"]

HEARTBEAT_SECONDS: Final = 15.0
"""Interval of comments that keep proxies from closing an idle stream."""


_encode = msgspec.json.Encoder().encode


class Listener:
    """The broadcast events of one client. One that reads too slowly loses the oldest."""

    def __init__(self, bytes_max: int, closed: Callable[["Listener"], object]) -> None:
        self._bytes_max = bytes_max
        self._closed = closed
        self._pending: deque[bytes] = deque()
        self._pending_bytes = 0
        self._woken = asyncio.Event()
        self._has_ended = False

    def offer(self, block: bytes) -> None:
        self._pending.append(block)
        self._pending_bytes += len(block)
        while self._pending_bytes > self._bytes_max:
            self._pending_bytes -= len(self._pending.popleft())
        self._woken.set()

    def beat(self) -> None:
        """Send a heartbeat, unless something else is to be sent."""
        if not self._pending:
            self.offer(HEARTBEAT)

    async def next(self) -> bytes | None:
        while not self._has_ended:
            if self._pending:
                blocks = b"".join(self._pending)
                self._pending.clear()
                self._pending_bytes = 0
                return blocks
            self._woken.clear()
            await self._woken.wait()
        return None

    def close(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._woken.set()
            self._closed(self)


class EventHub:
    """The event streams of one service.

    `sleep` waits for the next heartbeat; tests pass their own.
    """

    def __init__(
        self,
        *,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
        streams_max: int = EVENT_STREAMS_MAX,
        pending_bytes_max: int = EVENT_STREAM_BYTES_MAX,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._heartbeat_seconds = heartbeat_seconds
        self._streams_max = streams_max
        self._pending_bytes_max = pending_bytes_max
        self._sleep = sleep
        self._pacer = PushPacer()
        self._feeds: dict[Hashable, Feed] = {}
        self._subscriptions: dict[Subscription | Listener, None] = {}
        self._beating: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._subscriptions)

    @property
    def feeds(self) -> int:
        """The number of shared watches."""
        return len(self._feeds)

    def stream(
        self,
        store: Store,
        *records: Record[Any],
        since: int | None = None,
        prefix: str | None = None,
        encode: EventEncoder | None = None,
        encode_unreadable: UnreadableEncoder | None = None,
        **fields: Any,
    ) -> EventStream:
        """Return the response of a handler: the changes of these records after revision `since`.

        The arguments are those of `Store.watch`. Streams with equal arguments and the same `encode`
        share a watch. By default an event is `put` or `gone`, with `key`, `revision` and `value`.
        A stream of several records, none of them with a legacy key, needs `encode`. A row that does
        not decode is left out, unless `encode_unreadable` makes an event of it.
        """
        _check_records(store, records, prefix, encode, fields)
        encoder = encode or _default_encoder(records[0])
        watched = Watched(store, records, prefix, fields, encoder, encode_unreadable)
        key = (
            store.engine,
            store.space,
            records,
            prefix,
            tuple(sorted(fields.items())),
            encode,
            encode_unreadable,
        )

        async def subscribe(since: int | None) -> Subscription:
            return await self._subscribe(key, watched, since)

        return EventStream(subscribe, since)

    def broadcasts(self, state: Callable[[], Awaitable[Iterable[tuple[str, Any]]]]) -> EventStream:
        """Return the response of a handler: the events that are broadcast from now on. It starts
        with those of `state`, names and data, so that a client misses nothing."""

        async def subscribe(_: int | None) -> Listener:
            self._check_room()
            listener = Listener(self._pending_bytes_max, self._forget)
            self._add(listener)
            try:
                for name, data in await state():
                    listener.offer(event_block(name, _encode(data)))
            except BaseException:
                listener.close()
                raise
            return listener

        return EventStream(subscribe)

    async def broadcast(self, name: str, data: Any) -> None:
        """Send an event to the clients that listen in this process. `data` is encoded as JSON."""
        block = event_block(name, _encode(data))
        listeners = [each for each in self._subscriptions if isinstance(each, Listener)]
        await self._pacer.push(lambda listener: listener.offer(block), listeners)

    def _check_room(self) -> None:
        if len(self._subscriptions) >= self._streams_max:
            raise BusyError("Too many event streams are open: try again.", limit=self._streams_max)

    def _add(self, subscription: Subscription | Listener) -> None:
        self._subscriptions[subscription] = None
        if self._beating is None:
            self._beating = asyncio.get_running_loop().create_task(self._beat())

    async def _subscribe(self, key: Hashable, watched: Watched, since: int | None) -> Subscription:
        self._check_room()
        feed = self._feeds.get(key)
        if feed is None:
            feed = self._feeds[key] = Feed(
                watched, self._pacer, lambda feed: self._remove(key, feed)
            )
        subscription = Subscription(feed, self._pending_bytes_max, self._forget)
        self._add(subscription)
        try:
            await feed.join(subscription, since)
        except BaseException:
            subscription.close()
            raise
        return subscription

    def _forget(self, subscription: Subscription | Listener) -> None:
        self._subscriptions.pop(subscription, None)
        if not self._subscriptions and self._beating is not None:
            self._beating.cancel()
            self._beating = None

    def _remove(self, key: Hashable, feed: Feed) -> None:
        if self._feeds.get(key) is feed:
            del self._feeds[key]

    async def _beat(self) -> None:
        while True:
            await self._sleep(self._heartbeat_seconds)
            await self._pacer.push(lambda each: each.beat(), self._subscriptions)


def _check_records(
    store: Store,
    records: Sequence[Record[Any]],
    prefix: str | None,
    encode: EventEncoder | None,
    fields: Mapping[str, Any],
) -> None:
    if len(records) == 1:
        return
    if not records:
        raise UsageError("A stream needs the records whose changes it sends.")
    if prefix is not None or fields or encode is None:
        raise UsageError(
            "A stream of several records needs `encode`, and takes no prefix and no fields."
        )
    for record in records:
        if store.binding.record(record).moves:
            raise UsageError(
                "A stream of several records cannot have one with a legacy key.",
                record=record.name,
            )


def _default_encoder(record: Record[Any]) -> EventEncoder:
    def encode(event: Event[Any]) -> tuple[str, Any]:
        data = {"key": event.key, "revision": event.revision}
        if event.gone:
            return "gone", data
        return "put", data | {"value": record.shown(event.record)}

    return encode
