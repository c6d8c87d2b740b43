"""HTTP/1.1 as uvicorn speaks it, with an end to what is waited for, and refusals that look like all others.

uvicorn keeps the head of a request whatever its size, waits without end for one that is not finished, and for a client that
does not take its answer; and it refuses what is no request with a line of plain text. A head that comes in one piece, as
nearly every one does, starts none of the timers here.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

import httptools
import structlog
from uvicorn._types import HTTPScope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from keyhouse.errors import KeyhouseError, UsageError
from keyhouse.http.problem import HeadError, SlowError, refusal
from keyhouse.limits import HTTP_HEAD_BYTES_MAX
from keyhouse.serve.fast_response import FastResponse
from keyhouse.serve.write_buffer_limit import WriteBufferLimit
from keyhouse.serve.write_coalescing import CoalescingTransport

CONNECTION_LOG: Final = structlog.get_logger("keyhouse.http")

Timer = asyncio.TimerHandle


class HttpProtocol(HttpToolsProtocol):
    """One connection. A head may take `head_seconds_max`; of an answer, something is taken every `stall_seconds_max`.
    `refused` is told the status of what is refused here, and so is never a request of the application."""

    cycle: RequestResponseCycle | None  # type: ignore[assignment]  # none before the first request
    scope: HTTPScope | None  # type: ignore[assignment]

    def __init__(
        self,
        *arguments: Any,
        head_seconds_max: float,
        stall_seconds_max: float,
        refused: Callable[[int], None] | None = None,
        unsent: WriteBufferLimit | None = None,
        **named: Any,
    ) -> None:
        super().__init__(*arguments, **named)
        self._refused = refused
        self._unsent = WriteBufferLimit() if unsent is None else unsent
        self._head_seconds_max = head_seconds_max
        self._stall_seconds_max = stall_seconds_max
        self._head_timer: Timer | None = None
        self._stall_timer: Timer | None = None
        self._head: Any = None
        self._came = 0  # bytes of the head that is not complete, without its first piece
        self._piece = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(CoalescingTransport(transport, self.loop))  # type: ignore[arg-type]  # it has all of one
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        self._unsent.release(self)
        super().connection_lost(exc)

    # What comes in

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._piece = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self.cycle is not None:
                self.cycle.keep_alive = (
                    False  # it is answered as any other, and nothing else is spoken behind it
                )
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(
                cause
                if isinstance(cause, KeyhouseError)
                else UsageError("What was sent is no HTTP request.")
            )
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete or cycle.scope is not self.scope:
            self._go_on_waiting(len(data))

    def _go_on_waiting(self, size: int) -> None:
        """A head is not complete; or it was empty lines, or the rest of a body that nobody reads."""
        if self._in_head:
            if self._head is self.scope:
                self._came += size
            self._head = self.scope
            if self._came > HTTP_HEAD_BYTES_MAX:
                self._refuse(_too_large())
                return
        self._await_head()

    def on_headers_complete(self) -> None:
        if (
            self._came + self._piece > HTTP_HEAD_BYTES_MAX
            and self._head_bytes() > HTTP_HEAD_BYTES_MAX
        ):
            raise _too_large()
        self._check_host()
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
            self._came = 0
        HttpToolsProtocol.on_headers_complete(self)

    def _check_host(self) -> None:
        """RFC 9112, 3.2: without it, or with two, nobody knows whom the request is for."""
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() == "1.1"):
            raise UsageError("A request names its host once: send one Host header.", hosts=hosts)

    @property
    def _in_head(self) -> bool:
        """Whether a request has begun of which not all headers are here: each has a scope of its own from its first byte."""
        return self.scope is not None and (self.cycle is None or self.cycle.scope is not self.scope)

    def _head_bytes(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _answering(self) -> RequestResponseCycle | None:
        """The request that is not answered yet, if there is one."""
        return None if self.cycle is None or self.cycle.response_complete else self.cycle

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_seconds_max, self._head_is_late)

    def _head_is_late(self) -> None:
        self._head_timer = None
        if self._in_head:
            self._refuse(SlowError("The head of the request did not come in time."))
        else:
            self.transport.close()

    # What goes out

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        task = self.loop.create_task(cycle.run_asgi(FastResponse(cycle, app)))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def pause_writing(self) -> None:
        super().pause_writing()
        size = self.transport.get_write_buffer_size()
        self._watch_stall(size)
        self._unsent.hold(self, size)

    def resume_writing(self) -> None:
        self._unsent.release(self)
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
        super().resume_writing()

    def _watch_stall(self, size: int) -> None:
        self._stall_timer = self.loop.call_later(self._stall_seconds_max, self._look_at_stall, size)

    def _look_at_stall(self, before: int) -> None:
        """A client may be slow, but not take nothing at all."""
        size = self.transport.get_write_buffer_size()
        if size < before:
            self._watch_stall(size)
        else:
            self._stall_timer = None
            self.transport.abort()

    def cut_off(self) -> None:
        """Of a client that takes its answer too slowly, while too much waits to be taken: see `WriteBufferLimit`."""
        CONNECTION_LOG.warning(
            "a slow client was cut off", unsent=self.transport.get_write_buffer_size()
        )
        self.transport.abort()

    def _refuse(self, error: KeyhouseError) -> None:
        """Say so and hang up; only hang up where an answer would be taken for that of another request."""
        cycle = self._answering()
        if cycle is not None:
            if (
                not cycle.more_body
            ):  # it is a request before this one, whose answer goes first, and is the last
                cycle.keep_alive = False
                self.flow.pause_reading()
                return
            cycle.disconnected = True
            cycle.message_event.set()
            if (
                cycle.response_started or self.pipeline
            ):  # or it waits itself for the answer to a request before it
                self.transport.close()
                return
        if self._refused is not None:
            self._refused(error.status)
        id = secrets.token_hex(8)
        CONNECTION_LOG.debug("a connection was refused", id=id, error=error.sentence)
        self.transport.write(refusal(error, id, self.server_state.default_headers))
        self.transport.close()


def _too_large() -> HeadError:
    return HeadError(
        "The head of the request is too large: send fewer headers, or shorter ones.",
        limit=HTTP_HEAD_BYTES_MAX,
    )
