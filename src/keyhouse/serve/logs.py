"""The log: to standard error, one line an event, as JSON for programs and in colour on a terminal.

What libraries log through Python's `logging` comes out the same way. No value of a record and no secret is ever a field.
"""

import json
import logging
import sys
from contextlib import suppress
from io import StringIO
from typing import Any, Literal, TextIO

import msgspec
import structlog
from structlog.typing import EventDict, ExcInfo, Processor

__all__ = ["set_up_logs"]

Format = Literal["auto", "json", "text"]


def set_up_logs(level: str, form: Format, stream: TextIO | None = None) -> None:
    """Once, when the program starts."""
    to = _Unfailing(stream or sys.stderr)
    least = logging.getLevelNamesMapping()[level.upper()]
    as_json = form == "json" or (form == "auto" and not to.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(
            fmt="iso" if as_json else "%H:%M:%S", utc=as_json, key="time"
        ),
    ]
    rendering: list[Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(serializer=_json)]
        if as_json
        else [
            _visible_fields,
            structlog.dev.ConsoleRenderer(
                colors=to.isatty(),
                pad_event_to=0,
                timestamp_key="time",
                sort_keys=False,
                exception_formatter=_traceback,
            ),
        ]
    )
    structlog.configure(
        processors=[*shared, *rendering],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.PrintLoggerFactory(to),  # type: ignore[arg-type]  # of a stream, it uses these two
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(to)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *rendering],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(least, logging.WARNING))  # of libraries, only what is wrong


def _visible(text: str, but: str = "") -> str:
    """Anybody can choose a key or a subject: what a terminal would obey in it is shown as an escape."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in but else c.encode("unicode_escape").decode() for c in text
    )


def _visible_fields(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Of texts alone: what else there is, is shown by its `repr`, which does the same."""
    return {
        name: _visible(value, but="\n" if name == "event" else "")
        if isinstance(value, str)
        else value
        for name, value in event.items()
    }


def _traceback(to: TextIO, raised: ExcInfo) -> None:
    """A plain one: others show variables, and secrets with them."""
    text = StringIO()
    structlog.dev.plain_traceback(text, raised)
    to.write(_visible(text.getvalue(), but="\n"))


class _Unfailing:
    """A stream that loses what it can't write. On a full disk, or when whoever reads the log has gone, each request that has
    something to say would fail, also one that was done."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.isatty = stream.isatty

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the latter says that it is closed
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()


def _json(event: dict[str, Any], **_: Any) -> str:
    """When, how grave and what come first, whatever else is said. JSON lets through what ends a line for some readers, and
    what a terminal obeys (U+007F to U+009F): here it is escaped like the rest."""
    whole = {name: event.pop(name) for name in ("time", "level", "event") if name in event} | event
    try:
        text = msgspec.json.encode(whole, enc_hook=repr).decode()
    except UnicodeEncodeError:  # a lone surrogate, which no UTF-8 has
        text = json.dumps(whole, default=repr)
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    )
