"""The serving process: logging, signals, the event loop and the garbage collector.

Log lines go to standard error, one per event, as JSON or (on a terminal) as coloured text. Lines of
libraries that use `logging` look the same. No value of a record and no secret is ever a field.
"""

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from io import StringIO
from typing import Any, Final, Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, ExcInfo, Processor

from keyhouse.serve.parent import Parent
from keyhouse.serve.server import Addresses, Build, Server
from keyhouse.serve.supervisor import supervise
from keyhouse.service.thread_priority import prefer_event_loop
from keyhouse.settings.sources import LoadedSettings

__all__ = ["serve", "set_up_logs", "tune_gc"]

GC_THRESHOLD: Final = 20_000
"""Allocations between two garbage collections; Python's default is 700."""

LINGER_SECONDS: Final = 1.0
"""Time for which a worker that was replaced keeps idle connections open (`Http1Server.drain`)."""

Format = Literal["auto", "json", "text"]

_log = structlog.get_logger("keyhouse.serve")


def serve(
    loaded: LoadedSettings, services: Mapping[str, Build], announce: Callable[[Addresses], None]
) -> None:
    """Serve until SIGTERM or SIGINT, then drain requests and return. A second signal exits at once.

    `announce` is called once, when all listeners are ready and all engines answer. With several
    workers, this process supervises them, and each returns from here too.
    """
    parent = None
    if loaded.settings.worker_count > 1:
        parent = supervise(loaded, announce)
        if parent is None:
            _log.info("stopped")
            return
        settings = loaded.settings
        set_up_logs(settings.log_level, settings.log_format, worker=parent.worker.number)
    prefer_event_loop()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(serve_until_stopped(loaded, services, announce, parent))


async def serve_until_stopped(
    loaded: LoadedSettings,
    services: Mapping[str, Build],
    announce: Callable[[Addresses], None],
    parent: Parent | None = None,
) -> None:
    ready, stopping = asyncio.Event(), asyncio.Event()
    server = Server(loaded, services, parent)

    async def run() -> None:
        async with AsyncExitStack() as stack:
            if parent is not None:
                await stack.enter_async_context(parent.connected(retire))
            addresses = await stack.enter_async_context(server)
            await server.wait_loaded()
            ready.set()
            tune_gc()
            _log.info("ready", systems=list(services), http=addresses.http, nats=addresses.nats)
            if parent is None:
                announce(addresses)
            else:
                await parent.ready(addresses)
            await stopping.wait()
            _log.info("shutting down: draining requests")

    running = asyncio.create_task(run())

    def on_signal(number: int) -> None:
        if stopping.is_set() and parent is None:
            os._exit(128 + number)
        stopping.set()
        if not ready.is_set():
            running.cancel()

    def retire() -> None:
        server.linger_seconds = LINGER_SECONDS
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT) if parent is None else (signal.SIGTERM,):
        asyncio.get_running_loop().add_signal_handler(number, on_signal, number)
    await asyncio.wait([running])
    if not running.cancelled():
        running.result()
    _log.info("stopped")


def tune_gc() -> None:
    """Collect garbage less often than Python does, and never again the objects of the startup.

    A request creates some dozens of objects and no cycles: with 64 in flight, the collector would
    look at all of them four times.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's where it is installed; it does not support Windows."""
    if sys.platform == "win32":
        return None
    try:
        import uvloop
    except ModuleNotFoundError:
        return None
    return uvloop.new_event_loop


# Logging


def set_up_logs(
    level: str, form: Format, stream: TextIO | None = None, *, worker: int | None = None
) -> None:
    """Configure logging, when the program starts, and in each worker, whose lines have its
    number."""
    output = _LossyStream(stream or sys.stderr)
    minimum = logging.getLevelNamesMapping()[level.upper()]
    as_json = form == "json" or (form == "auto" and not output.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        *([] if worker is None else [partial(_add_worker, worker)]),
        structlog.processors.TimeStamper(
            fmt="iso" if as_json else "%H:%M:%S", utc=as_json, key="time"
        ),
    ]
    rendering: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
        if as_json
        else [
            _escape_fields,
            structlog.dev.ConsoleRenderer(
                colors=output.isatty(),
                pad_event_to=0,
                timestamp_key="time",
                sort_keys=False,
                exception_formatter=_traceback,
            ),
        ]
    )
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(minimum),
        logger_factory=structlog.PrintLoggerFactory(output),  # type: ignore[arg-type]  # it calls two methods
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(minimum, logging.WARNING))  # of libraries only warnings and errors


def _add_worker(worker: int, _logger: Any, _method: str, event: EventDict) -> EventDict:
    event.setdefault("worker", worker)
    return event


def _escaped(text: str, allowed: str = "") -> str:
    """Escape characters that a terminal interprets: a caller may choose keys and subjects."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in allowed else c.encode("unicode_escape").decode() for c in text
    )


def _escape_fields(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Escape texts; other values are shown by `repr`, which escapes too."""
    return {
        name: _escaped(value, allowed="\n" if name == "event" else "")
        if isinstance(value, str)
        else value
        for name, value in event.items()
    }


def _traceback(output: TextIO, raised: ExcInfo) -> None:
    """Write a plain traceback: others show variables, and so secrets."""
    text = StringIO()
    structlog.dev.plain_traceback(text, raised)
    output.write(_escaped(text.getvalue(), allowed="\n"))


class _LossyStream:
    """Drops what it cannot write: on a full disk or a closed pipe, requests must not fail."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.isatty = stream.isatty

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # ValueError: it is closed
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _json(event: dict[str, Any], **_: Any) -> str:
    """Encode a line, with time, level and event first.

    JSON allows characters that end a line for some readers or that a terminal interprets
    (U+007F to U+009F): they are escaped too.
    """
    first = {name: event.pop(name) for name in ("time", "level", "event") if name in event}
    ordered = first | event
    try:
        text = msgspec.json.encode(ordered, enc_hook=repr).decode()
    except UnicodeEncodeError:  # a lone surrogate
        text = json.dumps(ordered, default=repr)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
