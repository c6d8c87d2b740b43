"""CPU affinity: the client on the first core, servers on the others.

Without pinning, client and server move between cores and caches, and the scheduler is measured.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def separate_cores() -> Iterator[Callable[[], None]]:
    """Pin this thread to the servers' cores; calling the yielded function moves it to the client's.

    Child processes inherit the cores of the moment they start. Does nothing on a single core or
    where the system cannot pin or forbids it. The available cores are the main thread's: an
    executor's thread that was started in an earlier block still has that block's.
    """
    cores = sorted(os.sched_getaffinity(os.getpid())) if hasattr(os, "sched_setaffinity") else []
    if len(cores) < 2 or not _pin(cores[1:]):
        yield lambda: None
        return
    try:
        yield lambda: os.sched_setaffinity(0, cores[:1])
    finally:
        os.sched_setaffinity(0, cores)


def _pin(cores: list[int]) -> bool:
    try:
        os.sched_setaffinity(0, cores)
    except OSError:  # a sandbox that forbids it
        return False
    return True
