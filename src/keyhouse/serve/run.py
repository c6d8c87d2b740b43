"""`serve`: a host, the signals that end it, and the word that it is ready."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Mapping

import structlog

from keyhouse.serve.host import Host, Place, Service
from keyhouse.serve.sources import Given

__all__ = ["serve"]

_log = structlog.get_logger("keyhouse.serve")


def serve(given: Given, services: Mapping[str, Service], announce: Callable[[Place], None]) -> None:
    """Serve until SIGTERM or SIGINT; then finish what was begun, and return. A second signal ends the process at once.

    `announce` is called once, when all of it answers.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(given, services, announce))


async def _serve(given: Given, services: Mapping[str, Service], announce: Callable[[Place], None]) -> None:
    ready, ending = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with Host(given, services) as place:
            ready.set()
            _log.info("ready", systems=list(services), http=place.http, nats=place.nats)
            announce(place)
            await ending.wait()
            _log.info("ending: nothing more is taken, and what was begun is finished")

    running = asyncio.create_task(run())

    def told(number: int) -> None:
        if ending.is_set():
            os._exit(128 + number)
        ending.set()
        if not ready.is_set():
            running.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told, number)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()
    _log.info("ended")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one: it is for no other system than these."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
