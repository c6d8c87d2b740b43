"""The data folder, locked by one process. The lock ends with the process.

The embedded nats-server inherits the lock as an open file: the folder stays locked until both have
ended, so that no second server opens the streams of one that is still writing.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from keyhouse.errors import LockedError, UsageError

__all__ = ["LOCK_FILE", "DataDir", "Holder", "holder_of", "is_alive"]

LOCK_FILE: Final = "serve.lock"
"""A folder that has it was the data folder of a `keyhouse serve`."""

_NOTE_BYTES_MAX: Final = 100

WAIT_SECONDS: Final = 10.0
"""Timeout for the nats-server of a process that was killed."""


class DataDir:
    """A folder that is locked until `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock

    @classmethod
    def take(cls, path: Path) -> "DataDir":
        """Lock the folder; create it, for this user only, if it is missing.

        Raises LockedError, with the process, if another one has it.
        """
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                "The data folder is not writable: choose another with --data, or let this user "
                "write to it.",
                data=str(path),
                reason=error.strerror,
            ) from None
        try:
            _lock(lock, path)
            os.ftruncate(lock, 0)
            os.pwrite(lock, b"%d\n" % os.getpid(), 0)
        except BaseException:
            os.close(lock)
            raise
        return cls(path, lock)

    @property
    def is_open_to_others(self) -> bool:
        """True if other users can read it. The mode of an existing folder is not changed."""
        return bool(self.path.stat().st_mode & 0o007)

    def note(self, workers: int, restarts: int, failed: int) -> None:
        """Write the number of workers, and of their restarts, behind the process."""
        text = b"%d %d %d %d\n" % (os.getpid(), workers, restarts, failed)
        os.pwrite(self.lock, text, 0)

    def release(self) -> None:
        os.close(self.lock)


class Holder(NamedTuple):
    """The process that serves a data folder, as its lock file names it. `restarts` of its workers
    succeeded, `failed` did not; a process without workers has none of the three numbers."""

    process: int
    workers: int = 1
    restarts: int = 0
    failed: int = 0


def holder_of(path: Path) -> Holder:
    """Return the process that serves a folder. Raises UsageError if none does."""
    try:
        with open(path / LOCK_FILE, "rb") as lock:
            holder = _holder(lock.fileno())
            if holder is not None and is_alive(holder.process) and _is_locked(lock.fileno()):
                return holder
    except FileNotFoundError:
        pass
    except OSError as error:
        raise UsageError(
            "The data folder is not readable: run this as the user that runs keyhouse serve.",
            data=str(path),
            reason=error.strerror,
        ) from None
    raise UsageError(
        "No keyhouse serves this data folder: start it with `keyhouse serve`, or name its folder"
        " with --data.",
        data=str(path),
    )


def _is_locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock(lock: int, path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder = _holder(lock)
        if holder is None or is_alive(holder.process) or time.monotonic() > deadline:
            raise LockedError(
                "Another keyhouse serves this data folder: stop it, or choose another folder"
                " (of serve: --data).",
                data=str(path),
                process=holder and holder.process,
            )
        time.sleep(0.05)


def _holder(lock: int) -> Holder | None:
    words = os.pread(lock, _NOTE_BYTES_MAX, 0).partition(b"\n")[0].split()
    return Holder(*map(int, words)) if words and all(map(bytes.isdigit, words)) else None


def is_alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
