"""Push queue: messages that nobody has asked for one by one, such as the changes of a watch.

Theory of operation. One change may be sent to every watch of a tenant, and a subscriber that does
not read makes the NATS server slow down the connection that publishes to it. So pushes use a
connection beside that of the replies, and are sent in turns of the tenants:

- Each call of `send` returns when its message is in the buffer of the connection, so a watch has
  one message waiting, and reads no further change until then.
- That buffer is kept small, and a tenant sends NATS_TENANT_PUSH_BYTES_PER_SECOND at most.
- The bytes that wait are bounded, for one tenant and for all. Beyond that, `send` raises BusyError:
  the watch ends, and its client can resume it.
"""

import asyncio
import time
from collections import deque
from typing import Final

from nats.errors import Error as NatsError

from keyhouse.errors import BusyError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.limits import (
    NATS_PUSH_BYTES_MAX,
    NATS_TENANT_PUSH_BYTES_MAX,
    NATS_TENANT_PUSH_BYTES_PER_SECOND,
    TENANTS_CACHED,
)

__all__ = ["PushQueue"]

BUFFER_BYTES_MAX: Final = 512 * 1_024
"""Unsent bytes of the connection up to which further pushes are added."""

BYTES_PER_TURN: Final = 128 * 1_024
"""Bytes per turn of the event loop; then requests are handled."""

BURST_SECONDS: Final = 0.25
"""Seconds of its rate that an idle tenant may send at once."""


class _TenantPushes:
    __slots__ = ("bytes", "due_at", "messages")

    def __init__(self) -> None:
        self.messages: deque[tuple[str, bytes, asyncio.Future[None]]] = deque()
        self.bytes = 0
        self.due_at = 0.0


class PushQueue:
    """Sends pushes over a connection, in turns of the tenants."""

    def __init__(self, client: NatsClient) -> None:
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._tenants: dict[str, _TenantPushes] = {}
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None

    async def send(self, tenant: str, subject: str, data: bytes) -> None:
        """Publish at the tenant's turn. Raises BusyError if too many bytes wait."""
        pushes = self._tenants.get(tenant)
        if pushes is None:
            if len(self._tenants) >= TENANTS_CACHED:
                self._forget_idle()
            pushes = self._tenants[tenant] = _TenantPushes()
        size = len(data)
        if (
            pushes.bytes + size > NATS_TENANT_PUSH_BYTES_MAX
            or self._bytes + size > NATS_PUSH_BYTES_MAX
        ) and pushes.messages:
            raise BusyError("Too many changes wait to be sent.", bytes=pushes.bytes)
        sent: asyncio.Future[None] = self._loop.create_future()
        pushes.messages.append((subject, data, sent))
        pushes.bytes += size
        self._bytes += size
        if self._sending is None or self._sending.done():
            self._sending = self._loop.create_task(self._send_all())
        await sent

    async def close(self) -> None:
        """Cancel what waits."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        for pushes in self._tenants.values():
            for _, _, sent in pushes.messages:
                sent.cancel()

    async def _send_all(self) -> None:
        turn_bytes = 0
        while waiting := [each for each in self._tenants.values() if each.messages]:
            now = time.monotonic()
            due = [each for each in waiting if each.due_at <= now]
            if not due:
                await asyncio.sleep(min(each.due_at for each in waiting) - now)
            for pushes in due:
                turn_bytes += await self._send_first(pushes, now)
                if turn_bytes >= BYTES_PER_TURN:
                    turn_bytes = 0
                    await asyncio.sleep(0)

    def _forget_idle(self) -> None:
        """Drop tenants that have nothing to send and may send a whole burst."""
        full_at = time.monotonic() - BURST_SECONDS
        self._tenants = {
            name: each
            for name, each in self._tenants.items()
            if each.messages or each.due_at > full_at
        }

    async def _send_first(self, pushes: _TenantPushes, now: float) -> int:
        subject, data, sent = pushes.messages.popleft()
        size = len(data)
        pushes.bytes -= size
        self._bytes -= size
        if sent.done():  # its watch has ended
            return 0
        start = max(pushes.due_at, now - BURST_SECONDS)
        pushes.due_at = start + size / NATS_TENANT_PUSH_BYTES_PER_SECOND
        try:
            await self._client.wait_for_space(BUFFER_BYTES_MAX)
            if not self._client.try_publish(subject, data):
                await self._client.publish(subject, data)
        except (NatsError, OSError) as error:
            if not sent.done():
                sent.set_exception(error)
        if not sent.done():
            sent.set_result(None)
        return size
