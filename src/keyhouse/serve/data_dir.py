"""The data folder is one process's own. The lock goes with the process, however that ends.

It is handed on to the embedded nats-server as an open file: so the folder is taken until both have ended, and no second
server ever works on the streams of one that is still writing its last.
"""

import fcntl
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from keyhouse.errors import LockedError, UsageError

__all__ = ["DataDir"]

FILE: Final = "serve.lock"
WAIT_SECONDS: Final = 10.0
"""How long the nats-server of a process that was killed is waited for."""


class DataDir:
    """A folder that is ours until `release`."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock

    @classmethod
    def take(cls, path: Path) -> "DataDir":
        """Make it if it is not there, readable by this user only. LockedError, with the process, when it is another's."""
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(path / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(
                "The data folder can't be written: name another one with --data, or let this user write there.",
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
        """A folder that was there keeps its rights: they may be meant."""
        return bool(self.path.stat().st_mode & 0o007)

    def release(self) -> None:
        os.close(self.lock)


def _lock(lock: int, path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        with suppress(BlockingIOError):
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder = _holder(lock)
        if holder is None or _lives(holder) or time.monotonic() > deadline:
            raise LockedError(
                "Another keyhouse serves this data folder: stop it, or name another folder with --data.",
                data=str(path),
                process=holder,
            )
        time.sleep(0.05)


def _holder(lock: int) -> int | None:
    text = os.pread(lock, 32, 0).strip()
    return int(text) if text.isdigit() else None


def _lives(process: int) -> bool:
    """Not one that has ended and is only not yet buried by its parent."""
    with suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
