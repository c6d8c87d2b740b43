"""Priorities of the threads of a service: the event loop runs first, computations last.

The event loop sleeps until a request arrives. On a machine whose cores are busy, Linux wakes it at
the end of the time slice of the running thread, after up to 4 ms: many times the duration of a
request. A thread that asks for short slices (Linux 6.12 and later) is run at once, as long as it
has not used more than its share, so it takes nothing from others.

Beyond its share it waits, and for a whole tick (4 ms) if a thread that computes has the same core;
a change that goes to 1,000 event streams is more than its share. Therefore threads that compute,
such as password hashes, leave one core free (`spare_cores`), and have the lowest priority and the
usual slices, so that the scheduler leaves them where they are and moves others to their cores. They
wait long where other programs use all cores. The policy SCHED_IDLE would let them wait without end,
and with them the event loop, while they hold the interpreter.

Python adds a wait: a thread that runs Python code keeps the interpreter for 5 ms while the event
loop waits for it. `SWITCH_SECONDS` makes that a fraction of a request.

None of this needs a privilege. Only the time slices need Linux 6.12; the switch interval applies
everywhere.
"""

import ctypes
import os
import platform
import struct
import sys
import threading
from contextlib import suppress
from typing import Final

__all__ = ["lower_priority", "prefer_event_loop", "spare_cores"]

SLICE_NANOSECONDS: Final = 100_000
"""The shortest time slice of Linux: 0.1 ms."""

SWITCH_SECONDS: Final = 0.0002
"""Time for which a thread keeps the interpreter while another waits for it."""

_NICENESS: Final = 19
_DEFAULT_SLICE: Final = 0
_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274}
"""Number of the system call; the C library has no function for it before glibc 2.41."""

_of_thread = threading.local()


def prefer_event_loop() -> None:
    """Called by the thread of the event loop, before it starts others."""
    sys.setswitchinterval(SWITCH_SECONDS)
    _set_slice(SLICE_NANOSECONDS)


def lower_priority() -> None:
    """Called by a thread that computes without the interpreter. A second call does nothing."""
    if getattr(_of_thread, "is_low", False):
        return
    _of_thread.is_low = True
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
    _set_slice(_DEFAULT_SLICE)  # threads inherit the slice of the thread that starts them


def spare_cores(most: int) -> int:
    """Return how many threads or processes may compute at once, up to `most`: one core is left to
    the event loop, where there are several."""
    if sys.platform == "linux":
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    return min(most, max(1, cores - 1))


def _set_slice(nanoseconds: int) -> None:
    """Set the time slice of this thread. Its policy stays as it is, if it is the usual one."""
    call = _SCHED_SETATTR.get(platform.machine())
    if sys.platform != "linux" or call is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    niceness = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, niceness, 0, nanoseconds, 0, 0)
    ctypes.CDLL(None).syscall(call, 0, ctypes.create_string_buffer(attributes, 48), 0)
