"""The process that becomes ffmpeg.

ffmpeg opens files by name, and another program may replace a file or a folder by a symbolic link
after it was checked. So this process opens every file below its root, through no link, and starts
ffmpeg with the open descriptors: names in its list lead to them (`/dev/fd/7`). It writes to an open
descriptor too, of a new file. Memory, time and the size of the output are limited: the files are
hostile.

Like `reader_process` it imports no packages of Keyhouse, so that it starts fast.
"""

import contextlib
import os
import resource
import stat
import sys
from pathlib import Path
from typing import Final

import msgspec

from keyhouse.rooted_path import open_below, open_folder_below
from keyhouse_audiobooks.files.reader_process import start_command

__all__ = ["Conversion", "Input", "command"]

MEMORY_BYTES_MAX: Final = 2 * 1_024**3
"""Address space of ffmpeg: it takes 100 to 400 MB."""
OUTPUT_BYTES_MAX: Final = 16 * 1_024**3
"""A larger file is not read (`files.FILE_BYTES_MAX`)."""

_DEMUXERS: Final = "concat,aac,aiff,asf,flac,mov,mp3,ogg,wav"
"""The readers that ffmpeg may use: none that opens what a file names, such as a playlist. `concat`
is that of our list; in a file of a book, it reads the other files of the book at most."""


class Input(msgspec.Struct, frozen=True):
    """A file below a root, with the size that it had when it was read."""

    root: str
    path: str
    size: int


class Conversion(msgspec.Struct, frozen=True):
    """`folder` is an empty one for links to the descriptors. `root` and `draft` are the new file,
    which replaces one of that name. `seconds` is the longest duration that it may have."""

    program: str
    folder: str
    files: list[Input]
    root: str
    draft: str
    codec: str
    muxer: str
    seconds: float


def command() -> list[str]:
    """Return the command; a Conversion in JSON goes to its standard input."""
    return start_command("files.converter_process")


def _open_input(file: Input) -> int:
    descriptor = open_below(file.root, file.path.split(os.sep))
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
        raise OSError("the file has changed since it was read: scan the library")
    os.set_inheritable(descriptor, True)
    return descriptor


def _open_output(root: str, path: str) -> int:
    *folders, name = path.split(os.sep)
    with open_folder_below(root, folders) as folder:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)  # of a process that was killed; a link is not followed
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(name, flags, 0o666, dir_fd=folder)
    os.set_inheritable(descriptor, True)
    return descriptor


def _arguments(job: Conversion) -> list[str]:
    """Open the files; return the arguments of ffmpeg, in which no name of a file or folder is."""
    lines = []
    for number, file in enumerate(job.files, 1):
        suffix = Path(file.path).suffix
        name = f"{number}{suffix}" if suffix[1:].isalnum() and suffix.isascii() else str(number)
        os.symlink(f"/dev/fd/{_open_input(file)}", os.path.join(job.folder, name))
        lines.append(f"file {name}\n")
    listed = Path(job.folder, "files.txt")
    listed.write_text("".join(lines))
    output = _open_output(job.root, job.draft)
    return [
        *(job.program, "-nostdin", "-v", "error", "-xerror", "-y"),
        *("-protocol_whitelist", "file", "-format_whitelist", _DEMUXERS),
        *("-f", "concat", "-i", str(listed), "-vn"),
        *("-c:a", job.codec, "-t", f"{job.seconds:.3f}"),
        *("-f", job.muxer, f"file:/dev/fd/{output}"),
    ]


def _limit() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000")  # ended before the service is


def main(_: list[str]) -> None:
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=Conversion)
    try:
        _limit()
        arguments = _arguments(job)
        os.execv(job.program, arguments)
    except OSError as error:
        sys.exit(f"{error.strerror or error}")
