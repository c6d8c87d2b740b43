"""A client of event streams that parses them as browsers do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class SentEvent(NamedTuple):
    name: str
    data: Any
    id: str | None


class EventClient:
    """One open stream. `comments` counts heartbeats; `last_id` is what a browser would send."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self.status = 0
        self.headers: dict[str, str] = {}
        self.comments = 0
        self.last_id = ""
        self._text = b""

    async def read_head(self) -> None:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        line, *headers = head.split("\r\n")
        self.status = int(line.split()[1])
        self.headers = dict(each.lower().split(": ", 1) for each in headers if each)

    async def next(self, seconds: float = 10) -> SentEvent | None:
        """Return the next event; None at the end of the stream."""
        async with asyncio.timeout(seconds):
            while (block := await self._block()) is not None:
                if block.startswith(b":"):
                    self.comments += 1
                    continue
                lines = [line.partition(": ")[::2] for line in block.decode().split("\n")]
                fields = dict(lines)
                if "id" in fields:
                    self.last_id = fields["id"]
                return SentEvent(fields["event"], json.loads(fields["data"]), fields.get("id"))
        return None

    async def heartbeat(self, seconds: float = 10) -> None:
        """Wait for a comment."""
        async with asyncio.timeout(seconds):
            block = await self._block()
            assert block is not None and block.startswith(b":"), block
            self.comments += 1

    async def _block(self) -> bytes | None:
        while b"\n\n" not in self._text:
            size = int(await self._reader.readline() or b"0", 16)
            piece = await self._reader.readexactly(size + 2)
            if size == 0:
                return None
            self._text += piece[:-2]
        block, _, self._text = self._text.partition(b"\n\n")
        return block


@asynccontextmanager
async def watching(port: int, path: str, **headers: str) -> AsyncIterator[EventClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
    lines = [f"GET {path} HTTP/1.1", "Host: x"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    client = EventClient(reader)
    try:
        async with asyncio.timeout(10):
            await client.read_head()
        yield client
    finally:
        writer.close()
