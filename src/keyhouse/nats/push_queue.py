"""Push queue: messages that nobody has asked for one by one, such as the changes of a watch.

Theory of operation. One change may be sent to every watch of a tenant, and a subscriber that does
not read makes the NATS server slow down the connection that publishes to it. So pushes use a
connection beside that of the replies, and are sent in turns of the tenants
(`keyhouse.scheduling.turns`):

- Each call of `send` returns when its message is in the buffer of the connection, so a watch has
  one message waiting, and reads no further change until then.
- That buffer is kept small: there is one place, which a message holds while the buffer is full.
- A tenant sends NATS_TENANT_PUSH_BYTES_PER_SECOND at most: its line rests for the time that its
  last message takes at this rate, less a burst.
- The bytes that wait are bounded, for one tenant and for all. Beyond that, `send` raises BusyError:
  the watch ends, and its client can resume it.
"""

import asyncio
import time
from typing import Final

from nats.errors import Error as NatsError

from keyhouse.errors import BusyError
from keyhouse.nats.client import NatsClient
from keyhouse.nats.limits import (
    NATS_PUSH_BYTES_MAX,
    NATS_TENANT_PUSH_BYTES_MAX,
    NATS_TENANT_PUSH_BYTES_PER_SECOND,
)
from keyhouse.scheduling.turns import Bounds, Line, Turns

__all__ = ["PushQueue"]

BUFFER_BYTES_MAX: Final = 512 * 1_024
"""Unsent bytes of the connection up to which further pushes are added."""

SENT_PER_TURN: Final = 32
SENT_BYTES: Final = 4_096
"""Pushes per turn of the event loop; one counts as one more for each of these bytes. Then requests
are handled."""

BURST_SECONDS: Final = 0.25
"""Seconds of its rate that an idle tenant may send at once."""

Push = tuple[str, bytes, "asyncio.Future[None]"]


class PushQueue:
    """Sends pushes over a connection, in turns of the tenants."""

    def __init__(self, client: NatsClient) -> None:
        self._client = client
        self._turns = Turns[Push](
            self._start,
            places=1,
            share=1,
            starts=SENT_PER_TURN,
            start_bytes=SENT_BYTES,
            bounds=Bounds(
                line_bytes=NATS_TENANT_PUSH_BYTES_MAX, few=1, floods_bytes=NATS_PUSH_BYTES_MAX
            ),
        )
        self._sending: asyncio.Task[None] | None = None

    async def send(self, tenant: str, subject: str, data: bytes) -> None:
        """Publish at the tenant's turn. Raises BusyError if too many bytes wait."""
        line = self._turns.line(tenant)
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._turns.wait(line, (subject, data, sent), len(data)):
            raise BusyError("Too many changes wait to be sent.", bytes=line.bytes)
        await sent

    async def close(self) -> None:
        """Cancel what waits."""
        for _, _, sent in self._turns.withdraw():
            sent.cancel()
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    def _start(self, line: Line[Push], push: Push) -> bool:
        subject, data, sent = push
        if sent.done():  # its watch has ended
            return False
        now = time.monotonic()
        line.due_at = max(line.due_at, now - BURST_SECONDS)
        line.due_at += len(data) / NATS_TENANT_PUSH_BYTES_PER_SECOND
        if line.due_at > now:
            self._turns.rest(line, line.due_at - now)
        if self._client.has_space(BUFFER_BYTES_MAX) and self._client.try_publish(subject, data):
            sent.set_result(None)
            return False
        self._sending = asyncio.get_running_loop().create_task(self._send_waiting(line, push))
        return True

    async def _send_waiting(self, line: Line[Push], push: Push) -> None:
        subject, data, sent = push
        try:
            await self._client.wait_for_space(BUFFER_BYTES_MAX)
            if not self._client.try_publish(subject, data):
                await self._client.publish(subject, data)
        except (NatsError, OSError) as error:
            if not sent.done():
                sent.set_exception(error)
        finally:
            self._turns.leave(line)
        if not sent.done():
            sent.set_result(None)
