"""The files that commands read and write: an export, a backup, a picture; and the data folder of
`keyhouse serve`, as the source or the target of a whole store."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from keyhouse.engines.sql.url import split_layout, sqlite_file
from keyhouse.errors import UsageError
from keyhouse.serve.data_dir import LOCK_FILE, DataDir

__all__ = ["atomic_file", "create_data_folder", "folder_of", "open_file", "require_unlocked"]


@contextmanager
def open_file(path: Path, mode: str) -> Iterator[BinaryIO]:
    """Open a file: `xb` for a new one, which only its owner can read; `rb` or `r+b` for an existing
    one.

    Written data is on disk when the block ends.
    """
    try:
        file = cast(BinaryIO, open(path, mode, opener=_private))  # noqa: SIM115  # closed below
    except FileExistsError:
        raise UsageError(
            "The file already exists: choose another name, or resume it.", file=str(path)
        ) from None
    except OSError as error:
        raise UsageError(
            "The file can't be opened: check its name, folder and permissions.",
            file=str(path),
            reason=error.strerror,
        ) from None
    with file:
        yield file
        if file.writable():
            file.flush()
            os.fsync(file.fileno())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to `path` when the block succeeds. If interrupted,
    there is neither."""
    if path.exists():
        raise UsageError("The file already exists: choose another name.", file=str(path))
    part = path.with_name(path.name + ".part")
    try:
        part.unlink(missing_ok=True)
        yield part
        try:
            os.replace(part, path)
            _sync_folder(path.parent)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    finally:
        part.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name as durable as the file."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


# The data folder


def create_data_folder(folder: Path) -> None:
    """Create a missing folder, for this user only, as `keyhouse serve` does."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            "The data folder can't be created: choose another.",
            data=str(folder),
            reason=error.strerror,
        ) from None


def folder_of(url: str) -> Path | None:
    """Return the folder of a SQLite file if a `keyhouse serve` has used it as its data folder."""
    if not url.startswith("sqlite:"):
        return None
    folder = Path(sqlite_file(split_layout(url)[0])).parent
    return folder if (folder / LOCK_FILE).exists() else None


@contextmanager
def require_unlocked(url: str) -> Iterator[None]:
    """Hold the lock of the data folder that has this SQLite file, so that no `keyhouse serve` uses
    it.

    Raises LockedError if one does. Other engines have no such folder.
    """
    folder = folder_of(url)
    if folder is None:
        yield
        return
    lock = DataDir.take(folder)
    try:
        yield
    finally:
        lock.release()
