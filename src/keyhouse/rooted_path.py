"""Opening files and folders below a folder without following symbolic links.

A path is opened one name at a time, each below the folder before it: no path leads elsewhere, even
if a folder is replaced by a link meanwhile. A name that is not one of an entry (`..`, or one with a
slash) is rejected before anything is opened or made.

It is at the root, as `normalization` and `private_types` are, because the process that reads audio
files loads them without a package.
"""

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

__all__ = ["open_below", "open_folder_below"]

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_below(root: str | os.PathLike[str], names: Sequence[str]) -> int:
    """Return the descriptor of a file, open for reading, by the names that lead to it from the
    root. Raises OSError. It may be a pipe or a device: check that."""
    _check_names(names)
    with open_folder_below(root, names[:-1]) as folder:
        return os.open(names[-1], _FLAGS, dir_fd=folder)


@contextmanager
def open_folder_below(
    root: str | os.PathLike[str], names: Sequence[str], *, create: bool = False
) -> Iterator[int]:
    """Open a folder by the names that lead to it from the root; `create` makes the missing ones.
    Files in it are opened, linked and deleted by their name and this descriptor (`dir_fd`). Raises
    OSError."""
    _check_names(names)
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in names:
        try:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
            inner = os.open(name, _FLAGS | os.O_DIRECTORY, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    try:
        yield folder
    finally:
        os.close(folder)


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name in ("", ".", "..") or "/" in name or "\0" in name:
            raise OSError(errno.EINVAL, "not a name of a file or folder", name)
