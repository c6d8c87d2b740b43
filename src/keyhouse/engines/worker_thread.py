"""A thread for errands: one thing after the other that has to wait, for the disk.

An executor makes a future, with locks of its own, for each; a commit in a group of small writes costs the loop less than
that does. So here the executor's thread stays while there is more to do, and is given it through a plain queue. When there
was nothing for a moment it goes, and so a program ends, as with any executor, though nobody closed its engine. It also
goes now and then when there is more, and asks to come again: a program that ends says no to that, and what is sent from
then on is done where it is sent.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Final

STAY_SECONDS: Final = 0.05
"""How long the thread waits for the next errand before it goes."""

STINT_SECONDS: Final = 1.0
"""How long it stays at most before it asks to come again: so long may a program that ends wait for one that never pauses."""

Errand = Callable[[], None]
"""It must not raise, nor send another."""


class WorkerThread:
    """`send` may be called from any thread."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._queue: SimpleQueue[Errand | None] = SimpleQueue()
        self._turn = threading.Lock()
        self._stays = False

    def send(self, errand: Errand | None) -> None:
        """Have it done after those before it."""
        self._queue.put(errand)
        with self._turn:
            if self._stays:
                return
            self._stays = True
        self._come()

    def end(self) -> None:
        """Let the thread go once all has been done. Nothing may be sent after it."""
        self.send(None)
        self._executor.shutdown(wait=False)

    def _come(self) -> None:
        try:
            self._executor.submit(self._stay)
        except RuntimeError:  # the program ends, and there is no thread to be had any more
            with self._turn:
                self._stays = False
                self._do_all()

    def _do_all(self) -> None:
        with suppress(Empty):
            while (errand := self._queue.get_nowait()) is not None:
                errand()

    def _stay(self) -> None:
        until = monotonic() + STINT_SECONDS
        while monotonic() < until:
            try:
                errand = self._queue.get(timeout=STAY_SECONDS)
            except Empty:
                with self._turn:
                    if self._queue.empty():  # what is sent from here on finds that nobody stays
                        self._stays = False
                        return
                continue
            if errand is None:
                return
            errand()
            del errand  # or its callers' answers are kept until the next
        self._come()
