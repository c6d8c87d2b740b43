"""The worker thread runs each job once, in order, and never delays interpreter shutdown."""

import subprocess
import sys
import threading

import pytest

from keyhouse.engines import worker_thread
from keyhouse.engines.worker_thread import WorkerThread
from tests.support.polling import wait_until

SECONDS_MAX = 30


def wait_until_thread_leaves(name: str) -> None:
    wait_until(lambda: not any(each.name.startswith(name) for each in threading.enumerate()))


def test_jobs_run_in_order_on_one_thread() -> None:
    worker = WorkerThread("in-order")
    done: list[tuple[int, str]] = []
    for number in range(100):
        worker.send(lambda number=number: done.append((number, threading.current_thread().name)))  # type: ignore[misc]
    worker.close()
    wait_until_thread_leaves("in-order")
    assert [number for number, _ in done] == list(range(100))
    assert len({name for _, name in done}) == 1


def test_a_job_sent_as_the_thread_leaves_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """With an idle timeout of 0 the thread leaves between any two jobs."""
    monkeypatch.setattr(worker_thread, "IDLE_SECONDS", 0)
    worker = WorkerThread("leaving")
    done = threading.Semaphore(0)
    for _ in range(2_000):
        worker.send(done.release)
    for _ in range(2_000):
        assert done.acquire(timeout=SECONDS_MAX)
    worker.close()
    wait_until_thread_leaves("leaving")


def test_a_program_exits_though_its_worker_was_not_closed() -> None:
    program = (
        "from keyhouse.engines.worker_thread import WorkerThread\n"
        "WorkerThread('x').send(lambda: print('done', flush=True))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert (ended.returncode, ended.stdout) == (0, "done\n")


OUTLIVED = """
import threading, time
from keyhouse.engines import worker_thread

worker_thread.RESUBMIT_SECONDS = 0.01
worker, main = worker_thread.WorkerThread("x"), threading.main_thread()

def sends_while(more, pause):
    while more():
        done = threading.Event()
        worker.send(done.set)
        assert done.wait(20)
        time.sleep(pause)
"""


def ended(program: str) -> tuple[int, str, str]:
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX
    )
    return found.returncode, found.stdout, found.stderr


def test_a_program_exits_though_a_daemon_thread_never_pauses() -> None:
    """A daemon thread keeps sending; the executor's thread must leave for shutdown."""
    program = (
        OUTLIVED
        + "threading.Thread(target=sends_while, args=(lambda: True, 0), daemon=True).start()"
    )
    assert ended(program) == (0, "", "")


def test_jobs_of_a_thread_that_outlives_the_main_thread_are_run() -> None:
    """No executor accepts work by then, and a caller would wait forever."""
    program = (
        OUTLIVED
        + """
def outlives():
    main.join()
    late = iter(range(3))
    sends_while(lambda: next(late, None) is not None, 2 * worker_thread.IDLE_SECONDS)
    worker.send(lambda: print("done", flush=True))
    worker.close()

worker.send(lambda: None)
threading.Thread(target=outlives).start()
"""
    )
    assert ended(program) == (0, "done\n", "")
