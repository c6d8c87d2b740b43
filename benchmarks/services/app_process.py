"""A measured server process: an app on the server of `keyhouse serve`, with its settings.

It prints its port and more as JSON when it is ready, and exits when its stdin closes.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import msgspec
import structlog
import uvloop

from keyhouse.serve.listener import bind, listening
from keyhouse.serve.process import tune_gc
from keyhouse.settings.settings import Address


async def serve(app: Any, **started: object) -> None:
    async with listening(app, bind(Address("127.0.0.1", 0)), drain_seconds=0) as address:
        tune_gc()  # as `keyhouse serve` does; for the baselines too
        line = msgspec.json.encode({**started, "port": address.port})
        print(line.decode(), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def run(main: Callable[[Path], Coroutine[Any, Any, None]]) -> None:
    """Run the process in the folder that is its argument."""
    structlog.configure(  # as `keyhouse serve` does, at its default level
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    uvloop.run(main(Path(sys.argv[1])))
