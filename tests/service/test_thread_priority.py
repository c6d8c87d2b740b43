"""Priorities of threads, in a separate process: they are not taken back."""

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, sys, threading
from pathlib import Path
from keyhouse.service.thread_priority import lower_priority, prefer_event_loop

def shown():
    text = Path(f"/proc/self/task/{threading.get_native_id()}/sched").read_text()
    slices = [line.split()[-1] for line in text.splitlines() if line.startswith("se.slice")]
    print(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()), slices[0])

def computing():
    lower_priority()
    lower_priority()
    shown()

shown()
prefer_event_loop()
shown()
thread = threading.Thread(target=computing)
thread.start()
thread.join()
print(sys.getswitchinterval() < 0.001)
"""


HAS_SLICES = [int(number) for number in re.findall(r"\d+", platform.release())[:2]] >= [6, 12]


@pytest.mark.skipif(
    not Path("/proc/self/sched").exists() or "se.slice" not in Path("/proc/self/sched").read_text(),
    reason="the slices of threads are not shown here",
)
def test_the_event_loop_has_short_slices_and_computations_do_not_inherit_them() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    before, loop, computing, switches = run.stdout.decode().splitlines()
    niceness, usual = before.split()
    assert loop == (f"{niceness} 100000" if HAS_SLICES else before)
    low, slice_ = computing.split()
    assert low == str(max(int(niceness), 19))
    # the usual slice; this process may have short ones itself, from a service that ran in it
    assert slice_ == usual or int(slice_) > int(usual) == 100_000
    assert switches == "True"
