"""Errands: each is done once, in order, whoever sends it and whenever the thread goes; and no program waits for it."""

import subprocess
import sys
import threading
import time

import pytest

from keyhouse.engines import worker_thread
from keyhouse.engines.worker_thread import WorkerThread

SECONDS_MAX = 30


def thread_goes(name: str) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while any(thread.name.startswith(name) for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_errands_are_done_in_order_on_one_thread() -> None:
    errands = WorkerThread("in-order")
    done: list[tuple[int, str]] = []
    for number in range(100):
        errands.send(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
    errands.close()
    thread_goes("in-order")
    assert [number for number, _ in done] == list(range(100))
    assert len({name for _, name in done}) == 1


def test_an_errand_that_comes_as_the_thread_goes_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no patience at all the thread goes between any two of them."""
    monkeypatch.setattr(worker_thread, "IDLE_SECONDS", 0)
    errands = WorkerThread("impatient")
    done = threading.Semaphore(0)
    for _ in range(2_000):
        errands.send(done.release)
    for _ in range(2_000):
        assert done.acquire(timeout=SECONDS_MAX)
    errands.close()
    thread_goes("impatient")


def test_a_program_ends_though_nobody_ended_its_errands() -> None:
    program = "from keyhouse.engines.worker_thread import WorkerThread; WorkerThread('x').send(lambda: print('done', flush=True))"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")


OUTLIVED = """
import threading, time
from keyhouse.engines import worker_thread

worker_thread.RESUBMIT_SECONDS = 0.01
errands, main = worker_thread.WorkerThread("x"), threading.main_thread()

def sends_while(more, pause):
    while more():
        done = threading.Event()
        errands.send(done.set)
        assert done.wait(20)
        time.sleep(pause)
"""


def ended(program: str) -> tuple[int, str, str]:
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    return found.returncode, found.stdout, found.stderr


def test_a_program_ends_though_a_thread_of_it_never_pauses() -> None:
    """One that no program waits for. The executor's, which it does wait for, must not stay because of it."""
    program = (
        OUTLIVED
        + "threading.Thread(target=sends_while, args=(lambda: True, 0), daemon=True).start()"
    )
    assert ended(program) == (0, "", "")


def test_a_thread_that_outlives_the_main_one_has_its_errands_done() -> None:
    """No executor takes anything any more then, and whoever waits for an answer would wait for ever."""
    program = (
        OUTLIVED
        + """
def outlives():
    main.join()
    late = iter(range(3))
    sends_while(lambda: next(late, None) is not None, 2 * worker_thread.IDLE_SECONDS)
    errands.send(lambda: print("done", flush=True))
    errands.close()

errands.send(lambda: None)
threading.Thread(target=outlives).start()
"""
    )
    assert ended(program) == (0, "done\n", "")
