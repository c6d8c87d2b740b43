"""The data folder of `keyhouse serve`, as the source or the target of a whole store."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from keyhouse.errors import UsageError

__all__ = ["create_data_folder", "folder_of", "require_unlocked"]


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
    from keyhouse.engines.sql.url import split_layout, sqlite_file

    if not url.startswith("sqlite:"):
        return None
    folder = Path(sqlite_file(split_layout(url)[0])).parent
    return folder if (folder / "serve.lock").exists() else None


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
    from keyhouse.serve.data_dir import DataDir

    lock = DataDir.take(folder)
    try:
        yield
    finally:
        lock.release()
