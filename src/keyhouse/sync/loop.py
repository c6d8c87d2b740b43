"""The event loop of the synchronous façade: one for the process, in its own thread.

Theory of operation. Any thread may call `run`: it hands a coroutine to the loop and waits for the
result. A function of the caller that a coroutine needs in the middle, such as the work of a
transaction, runs in the thread of the caller (`run_with_calls`), so that thread-local state of a
web framework is the caller's own:

    caller's thread                         loop's thread
    run_with_calls(make)   ── coroutine ──▶ make(call) runs
      waits                ◀── function ─── await call(function, …)
      calls the function   ── result ─────▶ continues
      returns              ◀── result ───── ends

After a fork, the child starts another loop; what was opened before the fork is the parent's.
"""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from keyhouse.errors import UsageError

__all__ = ["call_on_loop", "run", "run_with_calls"]

R = TypeVar("R")

Caller = Callable[..., Awaitable[Any]]
"""Runs a function in the thread that waits, and returns its result."""


class _LoopThread:
    """The loop and its thread, started when they are first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="keyhouse-sync", daemon=True
                )
                self._thread.start()
            return self._loop

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread


_thread = _LoopThread()


def _forget_parent() -> None:
    global _thread
    _thread = _LoopThread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


def run(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine on the loop, and return its result. An interrupt cancels it."""
    if _thread.is_current:
        coroutine.close()
        raise UsageError(
            "keyhouse.sync was called by its own event loop: use the asynchronous names there."
        )
    future = asyncio.run_coroutine_threadsafe(coroutine, _thread.loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def call_on_loop(coroutine: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine on the loop, and wait for it unless this is the loop: for finalizers."""
    if _thread.is_current:
        asyncio.run_coroutine_threadsafe(coroutine, _thread.loop())
    else:
        run(coroutine)


def run_with_calls(make: Callable[[Caller], Coroutine[Any, Any, R]]) -> R:
    """Run the coroutine that `make` returns. It may await functions of this thread by the `call`
    that it is given. An error of such a function ends both."""
    loop = _thread.loop()
    calls: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = SimpleQueue()

    async def call(function: Callable[..., Any], *arguments: Any) -> Any:
        answer: asyncio.Future[Any] = loop.create_future()
        calls.put((answer, lambda: function(*arguments)))
        return await answer

    async def main() -> R:
        try:
            return await make(call)
        finally:
            calls.put(None)

    if _thread.is_current:
        return run(main())  # raises
    future = asyncio.run_coroutine_threadsafe(main(), loop)
    try:
        while (pending := calls.get()) is not None:
            answer, function = pending
            loop.call_soon_threadsafe(_set, answer, function())
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _set(answer: asyncio.Future[Any], result: Any) -> None:
    if not answer.done():
        answer.set_result(result)
