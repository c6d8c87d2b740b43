"""A process that responds over NATS: an echo, which is the baseline, or plugin storage.

    python -m benchmarks.services.nats_responder URL echo
    python -m benchmarks.services.nats_responder URL ENGINE_URL

It prints `ready` once it is subscribed, and exits when its stdin closes.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import structlog
import uvloop
from nats.aio.msg import Msg

from keyhouse import open_engine
from keyhouse.nats.connection import connect
from keyhouse.nats.limits import NATS_PARTITIONS
from keyhouse.nats.listener import NatsListener
from keyhouse.serve.metrics import Metrics
from keyhouse.serve.process import tune_gc
from keyhouse.service.spec import ServiceContext
from keyhouse_rosey import SYSTEM


@asynccontextmanager
async def echo(url: str) -> AsyncIterator[None]:
    async def respond(message: Msg) -> None:
        await message.respond(message.data)

    async with connect(url) as connection:
        await connection.subscribe("echo.>", queue="echo", cb=respond)
        await connection.flush()
        yield


@asynccontextmanager
async def rosey(url: str, engine_url: str) -> AsyncIterator[None]:
    """Serve as `keyhouse serve` does, with metrics and the log at INFO, but without logging slow
    operations: on a busy machine that would measure the log."""
    engine = await open_engine(engine_url)
    metrics = Metrics("0")
    settings = {
        "slow_seconds": 60,
        "rate_per_second": 1_000_000,
    }
    context = ServiceContext(
        engine=metrics.served("rosey", engine),
        data=Path(),
        metrics=metrics.registry,
        settings=settings,
    )
    served = SYSTEM.service(context)
    tasks = [asyncio.ensure_future(task()) for task in served.tasks]
    async with AsyncExitStack() as stack:
        main, *partitions = [
            await stack.enter_async_context(connect(url)) for _ in range(1 + NATS_PARTITIONS)
        ]
        listener = NatsListener(
            main,
            served.endpoints,
            name="rosey",
            version="0.1.0",
            partitions=dict(enumerate(partitions)),
        )
        await stack.enter_async_context(listener)
        yield
    for task in tasks:
        task.cancel()
    await engine.close()


async def main(url: str, target: str) -> None:
    async with echo(url) if target == "echo" else rosey(url, target):
        tune_gc()  # as `keyhouse serve` does; for the echo too
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    uvloop.run(main(*sys.argv[1:3]))
