"""An event loop without sockets, threads or real time.

Time passes only when every task waits for it: the loop then continues at the next timer. So an hour
of pauses takes no time, and the order of everything depends on the program alone.
"""

import asyncio
import selectors
from collections.abc import Callable, Mapping
from typing import Any

from keyhouse.errors import UsageError

__all__ = ["StalledError", "VirtualLoop"]


class StalledError(Exception):
    """Every task waits, and no timer is left that could wake one."""


class _NoSockets(selectors.BaseSelector):
    """Waits by moving the loop's time. Only asyncio's own pipe may be registered."""

    def __init__(self) -> None:
        self._keys: dict[Any, selectors.SelectorKey] = {}
        self.loop: VirtualLoop | None = None

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.loop is not None:
            raise UsageError("A simulation has no sockets: give the program an in-memory one.")
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, 0, events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise StalledError("Every task waits, and nothing will wake one.")
        if timeout > 0 and self.loop is not None:
            self.loop.now += timeout
        return []

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class VirtualLoop(asyncio.SelectorEventLoop):
    """`now` are the seconds since the loop was made."""

    def __init__(self) -> None:
        self.now = 0.0
        selector = _NoSockets()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]  # the base is typed by what it returns
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call the function at once: in place of a thread."""
        result = self.create_future()
        try:
            result.set_result(func(*args))
        except Exception as error:
            result.set_exception(error)
        return result
