"""Engines by URL. An engine's driver is imported when its engine is opened, and not before."""

import os
from collections.abc import Awaitable, Callable
from typing import Final

from keyhouse.clock import Clock, SystemClock
from keyhouse.engine import Engine
from keyhouse.errors import UsageError

__all__ = ["open_engine"]


async def open_engine(url: str, *, clock: Clock | None = None, create: bool = True) -> Engine:
    """Open the engine that `url` names.

    `memory:` is in this process, and gone with it. `sqlite:folder/file.db` is a file, made when it is not there; as a URL,
    `sqlite:///folder/file.db` starts in the working directory and `sqlite:////folder/file.db` at the root.
    With `create=False`, what is not there is not made: UsageError.
    """
    scheme, colon, rest = url.partition(":")
    opener = _OPENERS.get(scheme)
    if not colon or opener is None:
        raise UsageError("No engine has this scheme.", url=url, known=sorted(_OPENERS))
    return await opener(url, rest, clock or SystemClock(), create)


async def _open_memory(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    from keyhouse.engines.memory import MemoryEngine

    if rest.strip("/"):
        raise UsageError("The memory engine has no name: its URL is memory:", url=url)
    return MemoryEngine(clock=clock)


async def _open_sqlite(url: str, rest: str, clock: Clock, create: bool) -> Engine:
    path = rest.removeprefix("///")
    if not path or path.startswith("//") or path == ":memory:":
        raise UsageError("A SQLite URL names a file: sqlite:///folder/file.db", url=url)
    if not create and not os.path.exists(path):
        raise UsageError("There is no such file.", file=path)
    try:
        from keyhouse.engines.sqlite import SqliteEngine
    except ModuleNotFoundError as error:
        raise ImportError("The SQLite engine needs apsw: pip install 'keyhouse[sqlite]'") from error
    return SqliteEngine.open(path, clock=clock)


_OPENERS: Final[dict[str, Callable[[str, str, Clock, bool], Awaitable[Engine]]]] = {
    "memory": _open_memory,
    "sqlite": _open_sqlite,
}
