"""`python -m benchmarks.services.http_server baseline|ours FOLDER`: a measured server process.

Both variants run on the same server with the same settings: `ours` is Streamkit on SQLite with one
note, `baseline` returns a constant. It prints its port, a token and the note's id.
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from keyhouse import Store, open_engine
from keyhouse.auth import JwtSettings, mint
from keyhouse.http import make_app
from keyhouse.serve.listener import bind, listening
from keyhouse.serve.process import tune_gc
from keyhouse.service.spec import ServiceContext, ServiceSpec
from keyhouse.settings.settings import Address
from keyhouse_streamkit import SYSTEM
from keyhouse_streamkit.schema import NOTE, SCHEMAS, Note

CUSTOMER = "12345"
NOTE_ID = "n1"
UNLIMITED = {"rate_per_second": 1e9, "rate_burst": 1_000_000_000}

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


async def service(folder: Path) -> ServiceSpec:
    engine = await open_engine(f"sqlite:{folder}/notes.db")
    note = Note(id=NOTE_ID, title="A note", content="To be read", extra={"panel": {}})
    await Store(SCHEMAS[0], engine, CUSTOMER).put(NOTE, note)
    spec: ServiceSpec = SYSTEM.service(
        ServiceContext(engine=engine, data=folder, metrics=CollectorRegistry(), settings=UNLIMITED)
    )
    return spec


async def main(variant: str, folder: Path) -> None:
    token = mint(JwtSettings(), folder, CUSTOMER, system="streamkit")
    app: Any = constant
    if variant == "ours":
        app = make_app([await service(folder)], registry=CollectorRegistry())
    async with listening(app, bind(Address("127.0.0.1", 0)), drain_seconds=0) as address:
        tune_gc()  # as `keyhouse serve` does; for the baseline too
        print(address.port, token, NOTE_ID, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    structlog.configure(  # as `keyhouse serve` does, at its default level
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
