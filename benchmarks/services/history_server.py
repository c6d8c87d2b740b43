"""`python -m benchmarks.services.history_server baseline|ours FOLDER`: a measured server process.

Both variants run on the same server: `ours` is viewing history on SQLite, durable; `baseline` reads
the body and returns a constant. It prints its port.
"""

import asyncio
import logging
import sys
from pathlib import Path
from typing import Any, Final

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from benchmarks.services.http_server import constant
from keyhouse import open_engine
from keyhouse.http import make_app
from keyhouse.serve.listener import bind, listening
from keyhouse.service.spec import ServiceContext
from keyhouse.settings.settings import Address
from keyhouse.systems.history.service import build

SECRET: Final = "only-for-benchmarks-0123456789abcdef-0123456789"
SETTINGS: Final = {"jwt_secret": SECRET, "rate_per_second": 1e9, "rate_burst": 1_000_000_000}


async def constant_post(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await constant(scope, receive, send)


async def main(variant: str, folder: Path) -> None:
    app: Any = constant_post
    if variant == "ours":
        engine = await open_engine(f"sqlite:{folder}/history.db?layout=history")
        context = ServiceContext(
            engine=engine, data=folder, metrics=CollectorRegistry(), settings=SETTINGS
        )
        app = make_app([build(context)], registry=CollectorRegistry())
    async with listening(app, bind(Address("127.0.0.1", 0)), drain_seconds=0) as address:
        print(address.port, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    structlog.configure(  # as `keyhouse serve` does, at its default level
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    uvloop.run(main(sys.argv[1], Path(sys.argv[2])))
