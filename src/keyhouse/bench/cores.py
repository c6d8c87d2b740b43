"""Who runs on which core: a client on the first, servers on the others. Unpinned, the two chase each other from core to
core, and each finds the other's memory in the cache: what is measured then is the scheduler."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def apart() -> Iterator[Callable[[], None]]:
    """What this thread starts in the block are servers. Call what the block is given, and from there on the thread is a
    client. Where there is one core only, or the system can't pin or does not let us, nothing is done.

    The cores are the main thread's: one of an executor that was made in an earlier block is still where it was made."""
    cores = sorted(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_setaffinity") else []
    if len(cores) < 2 or not _pinned(cores[1:]):
        yield lambda: None
        return
    try:
        yield lambda: os.sched_setaffinity(0, cores[:1])
    finally:
        os.sched_setaffinity(0, cores)


def _pinned(cores: list[int]) -> bool:
    try:
        os.sched_setaffinity(0, cores)
    except OSError:  # a sandbox that forbids it
        return False
    return True
