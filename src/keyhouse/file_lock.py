"""A lock of one among the processes of a host, for a file that one of them may write.

The kernel releases it when its process ends, however it ends. The file of a lock may be deleted
while it is held: those that have opened it then open the next one.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["FileLock"]


class FileLock:
    """The lock that is the file `path`. Two objects exclude each other in one process too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @property
    def is_held(self) -> bool:
        return self._descriptor is not None

    def acquire(self) -> bool:
        """Take the lock if nobody else has it; return whether it is held. Raises OSError if the
        file cannot be opened."""
        while self._descriptor is None:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if not _is_locked(descriptor):
                    return False
                with suppress(FileNotFoundError):
                    if os.path.samestat(os.fstat(descriptor), os.stat(self.path)):
                        self._descriptor, descriptor = descriptor, -1
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
        return True

    def release(self, *, delete: bool = False) -> None:
        """Release the lock, if it is held, and delete its file if asked to."""
        if self._descriptor is not None:
            if delete:
                self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None


def _is_locked(descriptor: int) -> bool:
    """Lock an open file, unless another process has; return whether it is locked."""
    if sys.platform == "win32":
        return True  # a service runs elsewhere
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
