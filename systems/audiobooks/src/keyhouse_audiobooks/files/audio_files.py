"""Folders of audio files: walking, reading and hashing them. It knows no store.

No symbolic link is followed, so nothing outside of the roots is ever read. Names with control
characters are skipped: another program, or a log, could take a part of them for something else.
`is_scanned` is the rule of all names: whatever moves or names a file asks it, since a book whose
files no scan finds has lost them.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from io import BufferedReader, BytesIO
from operator import attrgetter
from pathlib import Path
from typing import Final, TypeVar

from msgspec import Struct

from keyhouse.errors import NotFoundError, RecordError
from keyhouse.rooted_path import open_below
from keyhouse_audiobooks.files.audio_tags import (
    AUDIO_EXTENSIONS,
    UNREAD_EXTENSIONS,
    AudioTags,
    BrokenFileError,
    read_tags,
)

__all__ = [
    "AudioFile",
    "FoundFile",
    "FoundFiles",
    "below_root",
    "has_control_characters",
    "is_scanned",
    "natural",
    "open_regular",
    "printable_path",
    "read_file",
    "resolve_below",
    "skip_reason",
    "walk",
]

_WHOLE_BYTES_MAX: Final = 1_024 * 1_024
FILE_BYTES_MAX: Final = 16 * 1_024**3
"""A larger file is not an audiobook."""
DEPTH_MAX: Final = 100
"""Folders within folders that a scan goes into."""
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
"""Control characters and line breaks of Unicode."""

AnyPath = TypeVar("AnyPath", Path, str, Path | str)
COVER_NAMES: Final = ("cover.jpg", "cover.jpeg", "cover.png", "folder.jpg", "folder.png")


class FoundFile(Struct, frozen=True):
    """A file of a folder, without its content."""

    path: str
    size: int
    mtime_ns: int


class FoundFiles(Struct):
    """The files of `folders`, which were read except for what was `skipped`, for a reason.
    `unread` has the paths of audio files that no reader reads, by the end of their names."""

    files: list[FoundFile] = []
    folders: list[str] = []
    skipped: dict[str, str] = {}
    unread: dict[str, list[str]] = {}

    def has_looked_at(self, path: str) -> bool:
        """Return whether a file would be among the files if it were there."""
        return _is_within(path, self.folders) and not _is_within(path, self.skipped)


class AudioFile(Struct, kw_only=True):
    """A file that was read: its tags and hash, or the reason why not."""

    found: FoundFile
    tags: AudioTags | None = None
    sha256: str = ""
    error: str = ""


def walk(root: Path | str, found: FoundFiles) -> None:
    """Add the audio files below a folder, each folder by name, and what is skipped, with the
    reason. Raises OSError if the folder itself cannot be read."""
    waiting = [(str(root), 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as listed:
                entries = sorted(listed, key=attrgetter("name"))
        except FileNotFoundError:  # deleted meanwhile
            if depth:
                continue
            raise
        except OSError as error:
            if not depth:
                raise
            found.skipped[folder] = error.strerror or str(error)
            continue
        folders: list[tuple[str, int]] = []
        for entry in entries:
            if _is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                if reason := _unusable(entry.name, depth + 1):
                    found.skipped[entry.path] = reason
                else:
                    folders.append((entry.path, depth + 1))
            else:
                _add_file(found, entry)
        waiting += reversed(folders)
    found.folders.append(str(root))


def _add_file(found: FoundFiles, entry: os.DirEntry[str]) -> None:
    extension = _extension(entry.name)
    is_audio = extension in AUDIO_EXTENSIONS
    if not (is_audio or extension in UNREAD_EXTENSIONS):
        return
    if not entry.is_file(follow_symlinks=False):
        return
    if reason := _unusable(entry.name):
        found.skipped[entry.path] = reason
    elif not is_audio:
        found.unread.setdefault(extension, []).append(entry.path)
    else:
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:  # deleted meanwhile
            return
        except OSError as error:
            found.skipped[entry.path] = error.strerror or str(error)
            return
        found.files.append(FoundFile(entry.path, status.st_size, status.st_mtime_ns))


def is_scanned(below: str) -> bool:
    """Return whether a scan finds an audio file that has this path below a root."""
    return _extension(os.path.basename(below)) in AUDIO_EXTENSIONS and not skip_reason(below)


def skip_reason(below: str) -> str:
    """Return why a scan leaves out the file or folder of this path below a root, by its names;
    nothing if it does not."""
    reasons = (_unusable(name, depth) for depth, name in enumerate(below.split(os.sep)))
    return next(filter(None, reasons), "")


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def _extension(name: str) -> str:
    """Return what follows the last dot of a name; nothing if nothing else does."""
    stem, _, extension = name.rpartition(".")
    return extension.lower() if stem else ""


def _unusable(name: str, depth: int = 0) -> str:
    """Return why a file or folder of this name is skipped; nothing if it is not."""
    if not name or _is_hidden(name):
        return "the name is hidden, beginning with a dot: rename it"
    if not _is_text(name):
        return "the name is not UTF-8: rename it"
    if has_control_characters(name):
        return "the name has control characters: rename it"
    return f"more than {DEPTH_MAX} folders deep" if depth > DEPTH_MAX else ""


def read_file(found: FoundFile, roots: Sequence[Path | str]) -> AudioFile:
    """Read tags and hash of a file below a root. A broken one has an error."""
    if found.size > FILE_BYTES_MAX:
        return AudioFile(found=found, error=f"larger than {FILE_BYTES_MAX >> 30} GiB")
    try:
        with open_regular(found.path, roots) as file:
            _check_holes(file, found.size)
            if found.size <= _WHOLE_BYTES_MAX:  # one read, where tags alone would take several
                content = _Content(file.read(found.size + 1))
                content.name = found.path
                tags = read_tags(Path(found.path), content)
                sha256 = hashlib.sha256(content.getbuffer()).hexdigest()
            else:
                tags = read_tags(Path(found.path), file)
                file.seek(0)
                sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except (BrokenFileError, OSError) as error:
        return AudioFile(found=found, error=str(error) or type(error).__name__)
    return AudioFile(found=found, tags=tags, sha256=sha256)


def _check_holes(file: BufferedReader, size: int) -> None:
    """Raise BrokenFileError if most of a file was never written: a hole takes no disk, and as long
    to hash as audio. Unfinished downloads have holes too."""
    if size <= _WHOLE_BYTES_MAX:
        return
    holes = end = 0
    while end < size:
        hole = os.lseek(file.fileno(), end, os.SEEK_HOLE)
        try:
            end = os.lseek(file.fileno(), hole, os.SEEK_DATA)
        except OSError:  # there is no data behind it
            end = size
        holes += end - hole
        if 2 * holes > size:
            raise BrokenFileError("most of it was never written: an unfinished download?")
    file.seek(0)


def open_regular(path: str, roots: Sequence[Path | str]) -> BufferedReader:
    """Open a regular file below a root, through no link. Raises OSError."""
    place = below_root(path, roots)
    if place is None:
        raise OSError("not below a root of the library")
    root, below = place
    file = open(  # noqa: SIM115  # the caller closes it
        path, "rb", opener=lambda *_: open_below(root, below.split(os.sep))
    )
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file


class _Content(BytesIO):
    """The content of a file in memory. mutagen looks at its name."""

    name: str


def below_root(path: str, roots: Sequence[AnyPath]) -> tuple[AnyPath, str] | None:
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
    if not _is_text(path) or has_control_characters(path):
        raise RecordError(
            "The path has control characters, or is not UTF-8.", path=printable_path(path)
        )
    candidates = [Path(path)] if os.path.isabs(path) else [root / path for root in roots]
    for candidate in candidates:
        resolved = Path(os.path.normpath(candidate))
        place = below_root(str(resolved), roots)
        if resolved not in roots and place is None:
            continue
        if os.path.realpath(resolved) != str(resolved):
            break
        if place is not None and (reason := skip_reason(place[1])):
            raise RecordError("Scans leave this path out.", path=path, reason=reason)
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


def has_control_characters(name: str) -> bool:
    """Return whether a name could be more than a name where it is printed or listed."""
    return _CONTROL.search(name) is not None


def printable_path(path: str) -> str:
    """Return a path as one line of text: `\\x0a` for a line break."""
    text = os.fsencode(path).decode(errors="replace")
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def _is_text(path: str) -> bool:
    if path.isascii():
        return True
    try:
        path.encode()
    except UnicodeEncodeError:  # a name that is not UTF-8
        return False
    return True
