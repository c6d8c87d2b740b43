"""What the server sends, taken apart: the driver's parser, with a short way for whole messages.

The driver matches each line with an expression, and moves what is left of its buffer at every step. Nearly all that comes is
whole messages without headers, many at once: those are cut out here, and whatever else there is goes to the driver.
"""

import asyncio
import re
from typing import Any

from nats.protocol import parser

# To the server a word ends at a space or a tab. The driver's expressions end it at any white space: a subject with a form
# feed in it would be taken for a broken protocol, and cost the connection.
parser.MSG_RE = re.compile(
    rb"\AMSG[ \t]+([^ \t\r\n]+)[ \t]+(\d+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)\r\n"
)
parser.HMSG_RE = re.compile(
    rb"\AHMSG[ \t]+([^ \t\r\n]+)[ \t]+(\d+)[ \t]+(([^ \t\r\n]+)[ \t]+)?(\d+)[ \t]+(\d+)\r\n"
)


class Parser(parser.Parser):
    """In the place of a client's own."""

    async def parse(self, data: bytes = b"") -> None:
        if not self.buf and self.state == parser.AWAITING_CONTROL_LINE:
            data = await self._whole_messages(data)
            if self.nc.is_reconnecting:
                return  # the connection broke meanwhile: what is left would be taken for the beginning of the next one's
        await super().parse(data)

    async def _whole_messages(self, data: bytes) -> bytes:
        """Hand on the messages that `data` begins with; the rest of it."""
        client: Any = self.nc
        at = 0
        while data.startswith(b"MSG ", at):
            end = data.find(b"\r\n", at)
            if not 0 < end - at < parser.MAX_CONTROL_LINE_SIZE:
                break
            words = data[at + 4 : end].split(b" ")
            if not 3 <= len(words) <= 4 or not words[1].isdigit() or not words[-1].isdigit():
                break
            start = end + 2
            stop = start + int(words[-1])
            if stop + 2 > len(data):
                break
            at = stop + 2
            reply = words[2] if len(words) == 4 else b""
            if (taker := client.takers.get(words[1])) is None:
                await client._process_msg(int(words[1]), words[0], reply, data[start:stop], None)
            elif client.give(taker, words[0], reply, data[start:stop]):
                await asyncio.sleep(0)
        return data[at:] if at else data
