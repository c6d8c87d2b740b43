"""`python -m keyhouse.bench.http_server limit|ours FOLDER`: a server to be measured, in a process of its own.

Both run on the same server with the same settings. It prints its port, and a token, and ends with its standard input.
"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvloop
from prometheus_client import CollectorRegistry

from keyhouse.auth import JwtSettings, mint
from keyhouse.bench.http_part import CUSTOMER, NOTE_ID, part
from keyhouse.http import make_app
from keyhouse.serve.listener import bind, listening
from keyhouse.settings.settings import Address

BODY = b'{"answer":"a constant"}'
_START = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))],
}
_BODY = {"type": "http.response.body", "body": BODY}


async def constant(scope: Any, receive: Any, send: Any) -> None:
    await send(_START)
    await send(_BODY)


async def main(what: str, folder: Path) -> None:
    token = mint(JwtSettings(), folder, CUSTOMER, system="streamkit")
    app: Any = constant
    if what == "ours":
        app = make_app([await part(folder)], registry=CollectorRegistry())
    async with listening(app, bind(Address("127.0.0.1", 0)), drain_seconds=0) as address:
        print(address.port, token, NOTE_ID, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
