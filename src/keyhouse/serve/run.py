"""`serve`: a host, the signals that end it, and the word that it is ready."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from keyhouse.serve.server import Addresses, Server, Service
from keyhouse.settings.sources import LoadedSettings

__all__ = ["serve", "tune_gc"]

GARBAGE_OBJECTS: Final = 20_000
"""Objects that are made, and not freed, between two looks for cycles; Python's own number is 700."""

_log = structlog.get_logger("keyhouse.serve")


def serve(
    given: LoadedSettings, services: Mapping[str, Service], announce: Callable[[Addresses], None]
) -> None:
    """Serve until SIGTERM or SIGINT; then finish what was begun, and return. A second signal ends the process at once.

    `announce` is called once, when all of it answers.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(given, services, announce))


async def _serve(
    given: LoadedSettings, services: Mapping[str, Service], announce: Callable[[Addresses], None]
) -> None:
    ready, ending = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        async with Server(given, services) as place:
            ready.set()
            tune_gc()
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


def tune_gc() -> None:
    """Look for cycles more rarely than Python does by itself, and never again among what was there at the start.

    A request makes some dozens of objects, and none that needs the collector: with 64 under way it would look at all of
    them four times. What a collection finds is found later, and takes no longer.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS, 20, 20)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where there is one: it is for no other system than these."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop
