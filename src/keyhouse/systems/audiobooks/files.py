"""Folders of audio files: walking, reading and hashing them. It knows no store.

No symbolic link is followed, so nothing outside of the roots is ever read.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from operator import attrgetter
from pathlib import Path
from typing import Final

from msgspec import Struct

from keyhouse.errors import NotFoundError, RecordError
from keyhouse.systems.audiobooks.audio_tags import (
    AUDIO_EXTENSIONS,
    AudioTags,
    BrokenFileError,
    read_tags,
)

__all__ = [
    "AudioFile",
    "FoundFile",
    "FoundFiles",
    "below_root",
    "natural",
    "read_file",
    "resolve_below",
    "walk",
]

_WHOLE_BYTES_MAX: Final = 1_024 * 1_024
COVER_NAMES: Final = ("cover.jpg", "cover.jpeg", "cover.png", "folder.jpg", "folder.png")


class FoundFile(Struct, frozen=True):
    """A file of a folder, without its content."""

    path: str
    size: int
    mtime_ns: int


class FoundFiles(Struct):
    """The files of `folders`, which were read except for what was `skipped`, for a reason."""

    files: list[FoundFile] = []
    folders: list[str] = []
    skipped: dict[str, str] = {}

    def has_looked_at(self, path: str) -> bool:
        """Return whether a file would be among the files if it were there."""
        return _is_within(path, self.folders) and not _is_within(path, self.skipped)


class AudioFile(Struct, kw_only=True):
    """A file that was read: its tags and hash, or the reason why not."""

    found: FoundFile
    tags: AudioTags | None = None
    sha256: str = ""
    error: str = ""


def walk(root: Path | str, skip: Callable[[str, str], object]) -> list[FoundFile]:
    """Return the audio files below a folder, by name. Raises OSError if the folder itself cannot be
    read. `skip` is called with the path of each folder or file within that cannot be read, and the
    reason."""
    files: list[FoundFile] = []
    _walk_into(files, str(root), skip)
    return files


def _walk_into(files: list[FoundFile], folder: str, skip: Callable[[str, str], object]) -> None:
    with os.scandir(folder) as found:
        entries = sorted(found, key=attrgetter("name"))
    for entry in entries:
        name = entry.name
        if name.startswith("."):
            continue
        stem, _, extension = name.rpartition(".")
        if entry.is_dir(follow_symlinks=False):
            try:
                _walk_into(files, entry.path, skip)
            except FileNotFoundError:  # deleted meanwhile
                continue
            except OSError as error:
                skip(_shown(entry.path), error.strerror or str(error))
        elif stem and extension.lower() in AUDIO_EXTENSIONS:
            is_file = entry.is_file(follow_symlinks=False)
            if is_file and (file := _found(entry, skip)) is not None:
                files.append(file)


def _found(entry: os.DirEntry[str], skip: Callable[[str, str], object]) -> FoundFile | None:
    if not _is_text(entry.path):
        skip(_shown(entry.path), "the name is not UTF-8: rename it")
        return None
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # deleted meanwhile
        return None
    except OSError as error:
        skip(entry.path, error.strerror or str(error))
        return None
    return FoundFile(entry.path, status.st_size, status.st_mtime_ns)


def read_file(found: FoundFile) -> AudioFile:
    """Read tags and hash of a file. A broken one has an error."""
    try:
        with open(found.path, "rb") as file:
            if found.size <= _WHOLE_BYTES_MAX:  # one read, where tags alone would take several
                content = file.read()
                tags = read_tags(Path(found.path), BytesIO(content))
                sha256 = hashlib.sha256(content).hexdigest()
            else:
                tags = read_tags(Path(found.path), file)
                file.seek(0)
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except (BrokenFileError, OSError) as error:
        return AudioFile(found=found, error=str(error) or type(error).__name__)
    return AudioFile(found=found, tags=tags, sha256=sha256)


def below_root(path: str, roots: Sequence[Path]) -> tuple[Path, str] | None:
    """Return the root that a path is below, and the path from there; None if there is none."""
    for root in roots:
        start = f"{root}{os.sep}"
        if path.startswith(start) and ".." not in Path(path).parts:
            return root, path.removeprefix(start)
    return None


def resolve_below(path: str, roots: Sequence[Path]) -> Path:
    """Return the file or folder that a caller names, if it is below a root without links.

    Raises RecordError for a path elsewhere, and NotFoundError if there is nothing.
    """
    if "\0" in path or not _is_text(path):
        raise RecordError("The path does not name a file.", path=path)
    candidates = [Path(path)] if os.path.isabs(path) else [root / path for root in roots]
    for candidate in candidates:
        resolved = Path(os.path.normpath(candidate))
        if resolved not in roots and below_root(str(resolved), roots) is None:
            continue
        if os.path.realpath(resolved) != str(resolved):
            break
        if os.path.lexists(resolved):
            return resolved
    else:
        if not any(below_root(os.path.normpath(each), roots) for each in candidates):
            raise RecordError("The path is not below a root of the library.", path=path)
        raise NotFoundError("There is no such file.", path=path)
    raise RecordError("The path leads through a symbolic link.", path=path)


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return the sort key of a name in which numbers count as numbers: 2 before 10."""
    return [
        (0, int(part), "") if part.isdecimal() and part.isascii() else (1, 0, part)
        for part in re.split(r"([0-9]{1,18})", name.casefold())
        if part
    ]


def _is_within(path: str, others: Iterable[str]) -> bool:
    return any(path == each or path.startswith(f"{each}{os.sep}") for each in others)


def _shown(path: str) -> str:
    return os.fsencode(path).decode(errors="replace")


def _is_text(path: str) -> bool:
    if path.isascii():
        return True
    try:
        path.encode()
    except UnicodeEncodeError:  # a name that is not UTF-8
        return False
    return True
