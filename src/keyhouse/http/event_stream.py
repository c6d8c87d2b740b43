"""Event streams (Server-Sent Events): a response that stays open and sends events as they occur.

A stream is not a request in flight: its duration says nothing, so it is neither timed nor logged as
slow, and shutdown ends all streams at once. A client reconnects by itself, with `Last-Event-ID`.

A stream outlives the request that opened it. A tenant may have a limited number of them open, and
one ends before the first event or heartbeat after its credentials have expired, were revoked or
have lost the scope of the route.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Protocol

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.errors import KeyhouseError, QuotaError, UsageError
from keyhouse.http.limits import EVENT_STREAM_CHECK_SECONDS, TENANT_EVENT_STREAMS_MAX
from keyhouse.http.response import EncodedResponse, Responder, ResponseSpec

__all__ = [
    "CredentialsCheck",
    "EventSource",
    "EventStream",
    "HeldPlaces",
    "OpenStreams",
    "ProcessPlaces",
    "TenantStreams",
    "event_block",
]

EVENT_STREAM = "text/event-stream"
_HEADERS = (
    (b"content-type", EVENT_STREAM.encode()),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would wait for a full buffer
)
_REVISION_MAX = 2**63 - 1
_REVISION_DIGITS_MAX = len(str(_REVISION_MAX))


class EventSource(Protocol):
    """The events of one client."""

    async def next(self) -> bytes | None:
        """Wait for events and return their encoded blocks; None at the end of the stream."""
        ...

    def close(self) -> None:
        """End the stream: `next` returns None. A second call does nothing."""
        ...


def event_block(name: str, data: bytes, id: str | None = None) -> bytes:
    """Encode one event. `data` is one line, as JSON is; an empty `id` resets the client's."""
    start = b"" if id is None else b"id: %s\n" % id.encode() if id else b"id\n"
    return b"%sevent: %s\ndata: %s\n\n" % (start, name.encode(), data)


class EventStream(Responder):
    """A response of events. `subscribe` opens its source after a revision; None: from now on.

    `since` is where the client asks to start. The header `Last-Event-ID`, which a client sends when
    it reconnects, takes precedence.
    """

    replies: ClassVar[Mapping[int, ResponseSpec]] = {
        200: ResponseSpec(
            type=bytes, about="Events, until either side disconnects.", media_type=EVENT_STREAM
        )
    }

    def __init__(
        self, subscribe: Callable[[int | None], Awaitable[EventSource]], since: int | None = None
    ) -> None:
        self.subscribe = subscribe
        self.since = since

    def while_valid(self, is_valid: Callable[[], Awaitable[bool]]) -> "EventStream":
        """Return the same stream, which ends before the first event or heartbeat at which
        `is_valid()` is false: a session that was revoked, for example."""

        async def subscribe(since: int | None) -> EventSource:
            return _ValidSource(await self.subscribe(since), is_valid)

        return EventStream(subscribe, self.since)

    async def respond(self, method: str, headers: Mapping[bytes, bytes]) -> EncodedResponse:
        since = _last_event_id(headers)
        if since is None:
            since = self.since
        if method == "HEAD":
            return EncodedResponse(200, [*_HEADERS])
        return EncodedResponse(200, [*_HEADERS], EventBody(await self.subscribe(since)))


class _ValidSource:
    """A source that ends when it is no longer valid."""

    def __init__(self, source: EventSource, is_valid: Callable[[], Awaitable[bool]]) -> None:
        self._source = source
        self._is_valid = is_valid

    async def next(self) -> bytes | None:
        blocks = await self._source.next()
        if blocks is None or await self._is_valid():
            return blocks
        self.close()
        return None

    def close(self) -> None:
        self._source.close()


class EventBody:
    """The body of an event stream."""

    __slots__ = ("source",)

    def __init__(self, source: EventSource) -> None:
        self.source = source


class OpenStreams:
    """The open event streams of an app."""

    def __init__(self) -> None:
        self._open: set[EventSource] = set()
        self._has_ended = False

    def __len__(self) -> int:
        return len(self._open)

    def end(self) -> None:
        """End all streams; later ones end after their headers."""
        self._has_ended = True
        for source in self._open:
            source.close()

    def restart(self) -> None:
        self._has_ended = False

    async def send(self, body: EventBody, start: Any, receive: Any, send: Any) -> None:
        """Send the events until the source ends, the client disconnects, or `end` is called."""
        source = body.source
        self._open.add(source)
        disconnect = asyncio.ensure_future(_disconnected(receive, source))
        if self._has_ended:
            source.close()
        try:
            await send(start)
            while (blocks := await source.next()) is not None:
                await send({"type": "http.response.body", "body": blocks, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._open.discard(source)
            source.close()
            disconnect.cancel()


async def _disconnected(receive: Any, source: EventSource) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    source.close()


def _last_event_id(headers: Mapping[bytes, bytes]) -> int | None:
    sent = headers.get(b"last-event-id")
    if not sent:
        return None
    if not sent.isdigit() or len(sent) > _REVISION_DIGITS_MAX or int(sent) > _REVISION_MAX:
        raise UsageError(
            "Last-Event-ID must be the id of an event of this stream.",
            sent=sent.decode("latin-1"),
        )
    return int(sent)


# Guards


class HeldPlaces(Protocol):
    """The places that are taken, by name."""

    def hold(self, name: str, most: int) -> bool:
        """Take a place, unless `most` are taken; return whether there was one."""
        ...

    def release(self, name: str) -> None:
        """Give a place back."""
        ...


class ProcessPlaces:
    """The places that are taken in this process."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def __len__(self) -> int:
        """Return the number of names with places."""
        return len(self._taken)

    def hold(self, name: str, most: int) -> bool:
        count = self._taken.get(name, 0)
        if count >= most:
            return False
        self._taken[name] = count + 1
        return True

    def release(self, name: str) -> None:
        count = self._taken[name] - 1
        if count:
            self._taken[name] = count
        else:
            del self._taken[name]


class TenantStreams:
    """Limits the open event streams of each tenant of a service; `streams_max` 0: unlimited.
    `places` are those of this process, or of all workers of a host."""

    def __init__(
        self, streams_max: int = TENANT_EVENT_STREAMS_MAX, places: HeldPlaces | None = None
    ) -> None:
        self._streams_max = streams_max or sys.maxsize
        self._places = places or ProcessPlaces()

    def limited(self, stream: EventStream, tenant: str) -> EventStream:
        """Return the same stream, which counts as one of the tenant's while it is open. Opening it
        raises QuotaError (429) if the tenant has too many."""

        async def subscribe(since: int | None) -> EventSource:
            if not self._places.hold(tenant, self._streams_max):
                raise QuotaError(
                    "Too many event streams are open: close some of them.", limit=self._streams_max
                )
            try:
                return _CountedSource(await stream.subscribe(since), self._places, tenant)
            except BaseException:
                self._places.release(tenant)
                raise

        return EventStream(subscribe, stream.since)


class _CountedSource:
    """A source that counts as one of its tenant's until it is closed."""

    __slots__ = ("_places", "_source", "_tenant")

    def __init__(self, source: EventSource, places: HeldPlaces, tenant: str) -> None:
        self._source = source
        self._places: HeldPlaces | None = places
        self._tenant = tenant

    async def next(self) -> bytes | None:
        return await self._source.next()

    def close(self) -> None:
        self._source.close()
        places, self._places = self._places, None
        if places is not None:
            places.release(self._tenant)


class CredentialsCheck:
    """Tells whether the credentials of an open response are still those of its caller.

    A verified token is checked each time. Sessions are read again at most once in
    EVENT_STREAM_CHECK_SECONDS: a change that goes to a thousand streams must not cause a thousand
    reads of sessions.
    """

    __slots__ = ("_auth", "_caller", "_headers", "_next_check", "_pairs", "_scope")

    def __init__(
        self,
        auth: Authenticator,
        caller: Caller,
        scope: str,
        pairs: HeaderPairs,
        headers: Mapping[bytes, bytes],
    ) -> None:
        self._auth = auth
        self._caller = caller
        self._scope = scope
        self._pairs = pairs
        self._headers = headers
        self._next_check = 0.0

    async def is_valid(self) -> bool:
        if len(self._headers) == len(self._pairs) and self._auth.cached_caller(self._headers):
            return True
        now = asyncio.get_running_loop().time()
        if now < self._next_check:
            return True
        try:
            caller = await self._auth.recheck(self._pairs)
        except KeyhouseError:  # rejected, or not known: the client may open another stream
            return False
        self._next_check = now + EVENT_STREAM_CHECK_SECONDS
        has_scope = not self._scope or self._scope in caller.scopes
        return has_scope and caller.tenant == self._caller.tenant
