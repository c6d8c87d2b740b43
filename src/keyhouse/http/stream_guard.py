"""Guards of event streams: how many one tenant may have open, and for how long.

A stream outlives the request that opened it. It ends before the first event or heartbeat after its
credentials have expired, were revoked or have lost the scope of the route.
"""

import asyncio
from collections.abc import Hashable, Mapping

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.errors import KeyhouseError, QuotaError
from keyhouse.http.event_stream import EventSource, EventStream
from keyhouse.limits import EVENT_STREAM_CHECK_SECONDS, TENANT_EVENT_STREAMS_MAX

__all__ = ["CredentialsCheck", "TenantStreams"]


class TenantStreams:
    """Counts the open event streams of each tenant of a service; `streams_max` 0: unlimited."""

    def __init__(self, streams_max: int = TENANT_EVENT_STREAMS_MAX) -> None:
        self._streams_max = streams_max
        self._open: dict[Hashable, int] = {}

    def __len__(self) -> int:
        """Return the number of tenants with open streams."""
        return len(self._open)

    def limited(self, stream: EventStream, tenant: Hashable) -> EventStream:
        """Return the same stream, which counts as one of the tenant's while it is open. Opening it
        raises QuotaError (429) if the tenant has too many."""

        async def subscribe(since: int | None) -> EventSource:
            self._enter(tenant)
            try:
                return _CountedSource(await stream.subscribe(since), self, tenant)
            except BaseException:
                self.leave(tenant)
                raise

        return EventStream(subscribe, stream.since)

    def _enter(self, tenant: Hashable) -> None:
        count = self._open.get(tenant, 0)
        if count >= self._streams_max > 0:
            raise QuotaError(
                "Too many event streams are open: close some of them.", limit=self._streams_max
            )
        self._open[tenant] = count + 1

    def leave(self, tenant: Hashable) -> None:
        count = self._open[tenant] - 1
        if count:
            self._open[tenant] = count
        else:
            del self._open[tenant]


class _CountedSource:
    """A source that counts as one of its tenant's until it is closed."""

    __slots__ = ("_source", "_streams", "_tenant")

    def __init__(self, source: EventSource, streams: TenantStreams, tenant: Hashable) -> None:
        self._source = source
        self._streams: TenantStreams | None = streams
        self._tenant = tenant

    async def next(self) -> bytes | None:
        return await self._source.next()

    def close(self) -> None:
        self._source.close()
        streams, self._streams = self._streams, None
        if streams is not None:
            streams.leave(self._tenant)


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
