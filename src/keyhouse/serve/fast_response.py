"""An answer that is whole, its head and its body, as one piece of bytes.

uvicorn looks at each header with two regular expressions, and writes the head as soon as it has it. Nearly every answer here
is whole: it says its length, and its one body has it. Those are put together at once, and looked at once. All others (a
stream, a HEAD, an answer that closes the connection) are uvicorn's.
"""

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_CONTROLS: Final = bytes([*range(0x09), *range(0x0A, 0x20), 0x7F])
"""What no header may hold; of these the head as a whole has the two that end each line, and no more."""

Message = Any
Headers = list[tuple[bytes, bytes]]


class FastResponse:
    """An ASGI application for one request: the app, with a `send` that does this."""

    __slots__ = ("_app", "_cycle", "_start")

    def __init__(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._cycle = cycle
        self._app = app
        self._start: Message = None

    def __call__(self, scope: Any, receive: Any, send: Any) -> Any:
        return self._app(scope, receive, self.send)

    async def send(self, message: Message) -> None:
        cycle, start = self._cycle, self._start
        if start is None:
            if (
                message["type"] == "http.response.start"
                and not cycle.response_started
                and _is_sized(message)
            ):
                self._start = message
            else:
                await RequestResponseCycle.send(cycle, message)
            return
        self._start = None
        whole = _whole(cycle, start, message)
        if whole is None:
            await RequestResponseCycle.send(cycle, start)
            await RequestResponseCycle.send(cycle, message)
            return
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(whole)
        cycle.message_event.set()
        cycle.on_response()


def _is_sized(start: Message) -> bool:
    """Whether it says its length: where it does, the body comes at once, and nobody waits for the head alone."""
    headers = start["headers"]
    return bool(headers) and headers[-1][0] == b"content-length"


def _whole(cycle: RequestResponseCycle, start: Message, message: Message) -> bytes | None:
    """The answer as it goes over the wire; None when it is one of those that are left to uvicorn."""
    headers: Headers = start["headers"]
    body: bytes = message.get("body", b"")
    if (
        message.get("more_body", False)
        or b"%d" % len(body) != headers[-1][1]
        or not cycle.keep_alive
        or cycle.disconnected
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
        or message["type"] != "http.response.body"
    ):
        return None
    lines = [b"%s: %s\r\n" % header for header in (*cycle.default_headers, *headers)]
    head = b"".join(lines)
    if (
        len(head) - len(head.translate(None, _CONTROLS)) != 2 * len(lines)
        or b"\nconnection:" in head
    ):
        return None
    return b"".join((STATUS_LINE[start["status"]], head, b"\r\n", body))
