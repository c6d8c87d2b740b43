"""The parser of the NATS protocol: bytes from the server to operations of the client.

It calls private methods of nats-py's client; `keyhouse.nats.client` lists them.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from nats.errors import ProtocolError

__all__ = ["CONTROL_LINE_BYTES_MAX", "MessageHandler", "Parser", "RawHandler"]

MessageHandler = Callable[[str, str, bytes], bool | None]
"""Receives a message: subject, reply subject (empty if none) and data. It must not raise. Returns
whether it started to handle the message, or else only queued it, which takes far less time."""

RawHandler = Callable[[bytes, bytes, bytes, bytes], None]
"""Receives a message as it is on the wire: subject, reply subject, headers (with their first line;
empty if none) and data. It must not raise."""

CONTROL_LINE_BYTES_MAX: Final = 1_024 * 1_024
"""A line of the protocol without its payload. An INFO line lists every server of a cluster."""

_CRLF: Final = b"\r\n"
_MESSAGE: Final = (b"HMSG ", b"MSG ")
_SIZE_DIGITS_MAX: Final = 10


class Parser:
    """Splits the server's bytes into operations, and passes each to the client.

    nats-py's parser matches each line with regular expressions, ends a word at any white space, and
    moves the rest of its buffer at every step. The server ends a word at a space or a tab only.
    `reset` is called when the connection breaks: bytes of the old connection are then dropped, also
    those of a `parse` that is waiting.
    """

    __slots__ = ("_chunks", "_client", "_connection", "_needed", "_size")

    def __init__(self, client: Any) -> None:
        self._client = client
        self._connection = 0
        self.reset()

    def reset(self) -> None:
        self._connection += 1
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed = 0

    def feed(self, data: bytes) -> bytes:
        """Pass on the messages that `data` starts with, and return the rest: it is for `parse`.

        Most reads hold such messages only, and need no step of the task that calls `parse`.
        """
        if self._chunks:
            return data
        at, _ = self._deliver(data, 0)
        return data[at:]

    async def parse(self, data: bytes = b"") -> None:
        """Raises nats-py's ProtocolError for bytes that are not of the protocol."""
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._needed:
                return
            data = b"".join(self._chunks)
            self._chunks = []
        connection = self._connection
        start = await self._operations(data, connection)
        if start < len(data) and self._connection == connection:
            self._chunks = [data[start:] if start else data]
            self._size = len(data) - start

    async def _operations(self, data: bytes, connection: int) -> int:
        """Pass on all complete operations. Returns the start of the first incomplete one, and sets
        `_needed` to the bytes that it has at least."""
        client = self._client
        at = 0
        while self._connection == connection:
            at, is_turn_over = self._deliver(data, at)
            if is_turn_over:
                await asyncio.sleep(0)
                continue
            end = data.find(_CRLF, at)
            if end < 0:
                if len(data) - at > CONTROL_LINE_BYTES_MAX:
                    raise ProtocolError("nats: control line too long")
                self._needed = 0
                break
            headers_size = 0
            words = data[at + 4 : end].split(b" ") if data.startswith(b"MSG ", at) else []
            if not (3 <= len(words) <= 4 and words[1].isdigit() and words[-1].isdigit()):
                if not data.startswith((b"MSG", b"HMSG"), at):
                    await self._control(data[at:end])
                    at = end + 2
                    continue
                words, headers_size = _message_words(data[at:end])
            payload = end + 2
            stop = payload + _number(words[-1])
            if stop + 2 > len(data):
                self._needed = stop + 2 - at
                break
            at = stop + 2
            reply = words[2] if len(words) == 4 else b""
            handler, raw = client.handlers.get(words[1]), client.raw_handlers.get(words[1])
            body = data[payload + headers_size : stop]
            headers = data[payload : payload + headers_size]
            if handler is not None:
                is_turn_over = client.deliver(handler, words[0], reply, body)
            elif raw is not None:
                is_turn_over = client.deliver_raw(raw, words[0], reply, headers, body)
            else:
                try:
                    await client._process_msg(
                        _number(words[1]), words[0], reply, body, headers or None
                    )
                except UnicodeDecodeError:
                    client.drop()
            if is_turn_over:
                await asyncio.sleep(0)
        return at

    def _deliver(self, data: bytes, at: int) -> tuple[int, bool]:
        """Pass messages without headers to their handlers, from `at` on, up to any other operation
        and to an incomplete one. Returns where it stopped, and whether other tasks should run
        first."""
        client = self._client
        handlers = client.handlers
        while data.startswith(b"MSG ", at):
            end = data.find(_CRLF, at)
            if end < 0:
                break
            words = data[at + 4 : end].split(b" ")
            size = words[-1]
            if not (3 <= len(words) <= 4 and size.isdigit() and len(size) <= _SIZE_DIGITS_MAX):
                break
            handler = handlers.get(words[1])
            stop = end + 2 + int(size)
            if handler is None or stop + 2 > len(data):
                break
            at = stop + 2
            reply = words[2] if len(words) == 4 else b""
            if client.deliver(handler, words[0], reply, data[end + 2 : stop]):
                return at, True
        return self._deliver_raw(data, at) if client.raw_handlers else (at, False)

    def _deliver_raw(self, data: bytes, at: int) -> tuple[int, bool]:
        """Continue with messages for raw handlers, as `_deliver` does."""
        client = self._client
        handlers = client.raw_handlers
        while data.startswith(_MESSAGE, at):
            end = data.find(_CRLF, at)
            if end < 0:
                break
            operation, *words = data[at:end].split(b" ")
            headers_size = b"0"
            if operation == b"HMSG":
                if len(words) < 4:
                    break
                headers_size = words.pop(-2)
            size = words[-1]
            if not (
                3 <= len(words) <= 4
                and size.isdigit()
                and headers_size.isdigit()
                and len(headers_size) <= len(size) <= _SIZE_DIGITS_MAX
            ):
                break
            handler = handlers.get(words[1])
            start = end + 2
            stop = start + int(size)
            if handler is None or stop + 2 > len(data):
                break
            at = stop + 2
            body = start + int(headers_size)
            reply = words[2] if len(words) == 4 else b""
            if client.deliver_raw(handler, words[0], reply, data[start:body], data[body:stop]):
                return at, True
        return at, False

    async def _control(self, line: bytes) -> None:
        operation, _, rest = line.replace(b"\t", b" ").partition(b" ")
        client = self._client
        if operation == b"PING":
            await client._process_ping()
        elif operation == b"PONG":
            await client._process_pong()
        elif operation == b"-ERR":
            await client._process_err(rest.strip().decode(errors="replace").lower())
        elif operation == b"INFO":
            try:
                info = json.loads(rest)
            except ValueError:
                raise ProtocolError("nats: malformed INFO") from None
            await client._process_info(info)
        elif operation != b"+OK":
            raise ProtocolError("nats: unknown protocol")


def _message_words(line: bytes) -> tuple[list[bytes], int]:
    """Split a MSG or HMSG line that is not the usual one: the words of a MSG, and the bytes of its
    headers."""
    operation, *words = [word for word in line.replace(b"\t", b" ").split(b" ") if word]
    size = 0
    if operation == b"HMSG" and len(words) >= 4:
        size = _number(words.pop(-2))
    elif operation != b"MSG":
        raise ProtocolError("nats: malformed MSG")
    if not 3 <= len(words) <= 4:
        raise ProtocolError("nats: malformed MSG")
    return words, size


def _number(digits: bytes) -> int:
    try:
        if digits.isdigit():
            return int(digits)
    except ValueError:  # more digits than Python converts
        pass
    raise ProtocolError("nats: malformed MSG")
