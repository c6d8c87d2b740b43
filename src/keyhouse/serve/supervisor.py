"""The parent of `keyhouse serve --workers N`: it forks workers, and replaces them.

Theory. The parent has what must outlive a worker: the lock of the data folder, the embedded
nats-server, and the HTTP socket, on which the first worker listens: the queue of connections that
wait to be accepted remains when a worker ends. The parent has imported and configured everything
before it forks, and then has no event loop and no thread: a fork copies only the thread that calls
it. A worker starts in a fraction of a second.

A worker has a place, 0 to N-1, which decides the partitions of NATS that it reads and whether it
does the background work of the host. Processes pass through a place:

| state | from | until |
|---|---|---|
| starts | its fork | it sends Ready: then it serves |
| serves | Ready | its successor sends Ready: then it retires; or it exits |
| retires | the parent has sent Retire | it has drained, and exits |

| event | what the parent does |
|---|---|
| place 0 is ready for the first time | starts the others: what is created once, is |
| all are ready for the first time | prints the line with the addresses |
| a process exits before that | stops all, with its exit code: it has printed the error |
| a process that serves exits | logs the reason, starts another: at once, or after a backoff |
| a process that starts exits | the same; in a restart, gives the restart up |
| SIGHUP | restarts: a new process for place 0, then 1, …, each after the one before has left |
| SIGTERM, SIGINT | stops: SIGTERM to every process; returns when all have exited |
| SIGHUP since the terminal was closed | the same |
| one of these again | kills all, and exits |

Nothing outlives the parent: the kernel kills workers with it, and stops the nats-server; elsewhere
than on Linux, a worker exits at the end of its link (`parent.py`). Workers inherit the lock as an
open file, so the folder is locked until the last one has ended.
"""

import gc
import os
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from enum import Enum
from pathlib import Path
from shutil import rmtree
from socket import MSG_DONTWAIT, socket, socketpair
from typing import Final, Self

import msgspec
import structlog

from keyhouse.errors import UnavailableError
from keyhouse.nats.server import die_with
from keyhouse.serve.data_dir import DataDir
from keyhouse.serve.listener import ConnectionShare, bind
from keyhouse.serve.nats_access import CHECK_SECONDS, SharedNats
from keyhouse.serve.parent import (
    FROM_WORKER,
    Done,
    Parent,
    Ready,
    Retire,
    SetPublic,
    StartNats,
    encode,
)
from keyhouse.serve.peers import FOLDER, retain_counters
from keyhouse.serve.server import Addresses
from keyhouse.service.worker import Worker
from keyhouse.settings.sources import LoadedSettings

__all__ = ["supervise"]

STABLE_SECONDS: Final = 10.0
"""A process that lived for this long is replaced at once; one that did not, after the backoff."""

BACKOFF_SECONDS: Final = 0.5
BACKOFF_SECONDS_MAX: Final = 30.0
"""Delay before the next process of a place, doubled with each that did not live long. The first
such process is replaced at once."""

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_READ_BYTES: Final = 65_536

_log = structlog.get_logger("keyhouse.supervisor")


def supervise(loaded: LoadedSettings, announce: Callable[[Addresses], None]) -> Parent | None:
    """Run workers until they are stopped; then return None. In each worker, return its parent.

    Raises SystemExit, in the parent, if the service could not start, or a worker failed to stop.
    """
    with ExitStack() as stack:
        data = DataDir.take(Path(loaded.settings.data))
        stack.callback(data.release)
        address = loaded.settings.http_address
        bound = None if address is None else stack.enter_context(bind(address))
        nats = SharedNats(loaded.settings, data)
        stack.callback(nats.stop)
        supervisor = Supervisor(loaded.settings.worker_count, data, bound, nats, announce)
        stack.enter_context(supervisor)
        parent = supervisor.run()
        if parent is not None:
            parent.inherited = stack.pop_all()
        return parent


class State(Enum):
    STARTS = "starts"
    SERVES = "serves"
    RETIRES = "retires"


class WorkerProcess:
    """A process of a worker, and the parent's end of its link."""

    def __init__(self, place: "Place", id: int, serial: int, link: socket) -> None:
        self.place = place
        self.id = id
        self.name = f"{place.number}-{serial}"
        self.link = link
        self.state = State.STARTS
        self.started = time.monotonic()
        self.received = b""


class Place:
    """`due` is the time at which the next process is to start, or None."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.processes: list[WorkerProcess] = []
        self.due: float | None = None
        self.short_lives = 0

    def has(self, state: State) -> bool:
        return any(process.state is state for process in self.processes)

    @property
    def is_settled(self) -> bool:
        """True if one process serves, and no other exists or is to start."""
        return self.due is None and [each.state for each in self.processes] == [State.SERVES]

    def backoff(self, lived: float) -> float:
        """Return the delay before the next process, after one that lived for so long."""
        self.short_lives = 0 if lived >= STABLE_SECONDS else self.short_lives + 1
        if self.short_lives < 2:
            return 0.0
        return min(BACKOFF_SECONDS * 2.0 ** (self.short_lives - 2), BACKOFF_SECONDS_MAX)


class Supervisor:
    """Kills the processes that still run when its block ends."""

    def __init__(
        self,
        count: int,
        data: DataDir,
        bound: socket | None,
        nats: SharedNats,
        announce: Callable[[Addresses], None],
    ) -> None:
        self._data = data
        self._bound = bound
        self._nats = nats
        self._nats_due = 0.0
        self._announce = announce
        self._addresses: Addresses | None = None
        self._places = [Place(number) for number in range(count)]
        self._connections = ConnectionShare.counts(count)
        self._serial = 0
        self._selector = selectors.DefaultSelector()
        self._waking, self._woken = socketpair()
        self._signals: deque[int] = deque()
        is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        self._had_terminal = not is_nohup and _has_terminal()
        self._is_ready = False
        self._is_stopping = False
        self._exit_code = 0
        self._to_restart: deque[Place] = deque()
        self._restarting: Place | None = None
        self._restarts = self._failed_restarts = 0

    def __enter__(self) -> Self:
        rmtree(self._data.path / FOLDER, ignore_errors=True)
        (self._data.path / FOLDER).mkdir(0o700)
        self._note()
        for each in (self._waking, self._woken):
            each.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        signal.set_wakeup_fd(self._waking.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda received, _: self._signals.append(received))
        gc.collect()
        gc.freeze()  # the collector of a worker writes to none of the pages that all share
        return self

    def __exit__(self, *_: object) -> None:
        self._send(signal.SIGKILL)
        for process in self._processes:
            os.waitpid(process.id, 0)

    @property
    def _processes(self) -> list[WorkerProcess]:
        return [process for place in self._places for process in place.processes]

    def run(self) -> Parent | None:
        """Supervise until all processes have exited. In each worker, return its parent."""
        self._places[0].due = 0.0
        while not self._is_stopping or self._processes:
            for place in self._places:
                if place.due is not None and place.due <= time.monotonic():
                    place.due = None
                    if (parent := self._start(place)) is not None:
                        return parent
            self._wait()
            self._handle_signals()
            self._reap()
            self._continue_restart()
            if time.monotonic() >= self._nats_due:
                self._nats.check()
                self._nats_due = time.monotonic() + CHECK_SECONDS
        if self._exit_code:
            raise SystemExit(self._exit_code)
        return None

    # Processes

    def _start(self, place: Place) -> Parent | None:
        """Start a process, or try again later, such as when there is not enough memory."""
        try:
            with ExitStack() as failing:
                ours, theirs = (failing.enter_context(each) for each in socketpair())
                signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
                failing.callback(signal.pthread_sigmask, signal.SIG_UNBLOCK, _SIGNALS)
                die_with_parent = die_with(os.getpid(), signal.SIGKILL)
                for stream in (sys.stdout, sys.stderr):
                    with suppress(OSError, ValueError):  # nobody reads it any more
                        stream.flush()
                self._serial += 1
                id = os.fork()
                failing.pop_all()
        except OSError as error:
            _log.error("worker could not be started", worker=place.number, reason=error.strerror)
            place.due = time.monotonic() + BACKOFF_SECONDS
            return None
        if id:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            theirs.close()
            process = WorkerProcess(place, id, self._serial, ours)
            place.processes.append(process)
            self._selector.register(ours, selectors.EVENT_READ, process)
            _log.info("worker started", worker=place.number, process=id)
            return None
        if die_with_parent is not None:
            die_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # until there is an event loop
        for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all processes
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        for each in (ours, self._waking, self._woken, self._selector):
            each.close()
        for process in self._processes:
            process.link.close()  # else it would stay open when the parent has died
        worker = Worker(place.number, len(self._places))
        share = ConnectionShare(self._connections, place.number)
        return Parent(worker, self._serial, self._data, self._bound, share, theirs)

    def _reap(self) -> None:
        for process in self._processes:
            ended, status = os.waitpid(process.id, os.WNOHANG)
            if ended:
                self._receive(process)
                self._remove(process)
                self._handle_exit(process, os.waitstatus_to_exitcode(status))

    def _remove(self, process: WorkerProcess) -> None:
        self._unregister(process)
        process.link.close()
        process.place.processes.remove(process)
        retain_counters(self._data.path / FOLDER, process.name)

    def _unregister(self, process: WorkerProcess) -> None:
        with suppress(KeyError):
            self._selector.unregister(process.link)

    def _handle_exit(self, process: WorkerProcess, code: int) -> None:
        """`code` is negative for a signal."""
        place = process.place
        reason = f"signal {-code}" if code < 0 else f"exit code {code}"
        fields = {"worker": place.number, "process": process.id, "reason": reason}
        if self._is_stopping:
            self._exit_code = max(self._exit_code, code)
        elif process.state is State.RETIRES:
            pass
        elif not self._is_ready:
            if code <= 0:
                raise UnavailableError("A worker ended while it started: see the log.", **fields)
            self._exit_code = code
            self._stop()
        elif process.state is State.STARTS and place.has(State.SERVES):
            _log.error("restart failed: the former worker continues", **fields)
            self._failed_restarts += 1
            self._end_restart()
        elif not place.has(State.STARTS):
            delay = place.backoff(time.monotonic() - process.started)
            place.due = time.monotonic() + delay
            _log.error("worker exited: replacing it", **fields, in_seconds=delay)

    def _handle_ready(self, process: WorkerProcess, addresses: Addresses) -> None:
        for former in process.place.processes:
            if former.state is State.SERVES:
                former.state = State.RETIRES
                with suppress(OSError):  # it has just ended
                    former.link.sendall(encode(Retire()))
        process.state = State.SERVES
        if self._is_ready or self._is_stopping:
            return
        if self._addresses is None:
            self._addresses = addresses
            for other in self._places[1:]:
                other.due = 0.0
        if all(place.is_settled for place in self._places):
            self._is_ready = True
            self._announce(self._addresses)

    def _stop(self) -> None:
        self._is_stopping = True
        self._end_restart()
        for place in self._places:
            place.due = None
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        for process in self._processes:
            os.kill(process.id, number)  # it exists, since it was not waited for

    # Restarts

    def _restart(self) -> None:
        if not self._is_stopping:
            _log.info("restarting the workers, one after the other")
            self._to_restart = deque(self._places)

    def _continue_restart(self) -> None:
        """Start the process of the next place once that of the one before has settled."""
        if not self._is_ready or (self._restarting and not self._restarting.is_settled):
            return
        if self._to_restart:
            self._restarting = self._to_restart.popleft()
            if not self._restarting.has(State.STARTS):
                self._restarting.due = 0.0
        elif self._restarting is not None:
            _log.info("workers restarted")
            self._restarts += 1
            self._end_restart()

    def _end_restart(self) -> None:
        self._to_restart.clear()
        self._restarting = None
        self._note()

    def _note(self) -> None:
        self._data.note(len(self._places), self._restarts, self._failed_restarts)

    # Signals and messages

    def _wait(self) -> None:
        """Wait for a signal, a message, or the next time at which something is due."""
        due = [self._nats_due, *(each.due for each in self._places if each.due is not None)]
        for key, _ in self._selector.select(max(0.0, min(due) - time.monotonic())):
            if key.data is None:
                self._woken.recv(_READ_BYTES)
            else:
                self._receive(key.data)

    def _handle_signals(self) -> None:
        while self._signals:
            number = self._signals.popleft()
            if number == signal.SIGCHLD:
                continue
            if number == signal.SIGHUP and not (self._had_terminal and not _has_terminal()):
                self._restart()
            elif self._is_stopping:
                self._send(signal.SIGKILL)
                os._exit(128 + number)
            else:
                _log.info("shutting down: draining requests")
                self._stop()

    def _receive(self, process: WorkerProcess) -> None:
        try:
            data = process.link.recv(_READ_BYTES, MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:  # it was killed with unread messages
            data = b""
        if not data:
            return self._unregister(process)
        *lines, process.received = (process.received + data).split(b"\n")
        for line in lines:
            message = FROM_WORKER.decode(line)
            if isinstance(message, Ready):
                self._handle_ready(process, msgspec.convert(message.addresses, Addresses))
            else:
                with suppress(OSError):  # it has just ended
                    process.link.sendall(encode(self._answer(message)))

    def _answer(self, message: StartNats | SetPublic) -> msgspec.Struct:
        if isinstance(message, StartNats):
            return self._nats.start_nats(jetstream=message.jetstream)
        self._nats.set_public(message.subjects, message.mappings)
        return Done()


def _has_terminal() -> bool:
    """Return whether the process has a terminal: SIGHUP after it was closed is not a request."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True
