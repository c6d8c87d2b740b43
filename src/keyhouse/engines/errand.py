"""A thread for errands: one thing after the other that has to wait, for the disk.

An executor makes a future, with locks of its own, for each; a commit in a group of small writes costs the loop less than
that does. So here the executor's thread stays while there is more to do, and is given it through a plain queue. When there
was nothing for a moment it goes, and so a program ends, as with any executor, though nobody closed its engine.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from typing import Final

STAY_SECONDS: Final = 0.05
"""How long the thread waits for the next errand before it goes."""

Errand = Callable[[], None]
"""It must not raise."""


class Errands:
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
        self._executor.submit(self._stay)

    def end(self) -> None:
        """Let the thread go once all has been done. Nothing may be sent after it."""
        self.send(None)
        self._executor.shutdown(wait=False)

    def _stay(self) -> None:
        while True:
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
