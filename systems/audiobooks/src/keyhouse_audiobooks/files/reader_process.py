"""The process that reads audio files.

A file is hostile: a small one may take gigabytes or minutes to read. So files are read here only,
with limits of memory and CPU time. A file that exceeds them ends the process, and nothing else.

It gets lists of files on its standard input, and returns each as soon as it was read on its
standard output: frames of MessagePack, each behind its length in four bytes. The first frame is
empty: it is ready. It ends with its input.

Starting it must be cheap, since a scan waits for it: `command` runs this module without the
`__init__` of its packages, which import a whole service. So it, and what it imports, import no
packages of Keyhouse, but modules that need nothing else.
"""

import contextlib
import os
import resource
import struct
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from keyhouse import errors
from keyhouse_audiobooks import records
from keyhouse_audiobooks.files.audio_files import AudioFile, FoundFile, read_file

__all__ = ["LENGTH", "command", "start_command"]

LENGTH: Final = struct.Struct(">I")
MEMORY_BYTES_MAX: Final = 512 * 1_024 * 1_024
"""Address space of the process. The largest cover takes some 100 MB to read."""
CPU_SECONDS_MAX: Final = 20
"""CPU time that the tags of a file may take; hashing has its own, by the size of the file."""
_HASHED_BYTES_PER_SECOND: Final = 32 * 1_024 * 1_024
"""A slow machine hashes more than this."""

_START: Final = """
import sys, types
for name, folder in zip(("keyhouse", "keyhouse_audiobooks"), sys.argv[1:3]):
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [folder]
from keyhouse_audiobooks.MODULE import main
main(sys.argv[3:])
"""


def command(roots: Sequence[Path]) -> list[str]:
    """Return the command that starts the process, for files below these roots."""
    return start_command("files.reader_process", *map(str, roots))


def start_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs `main` of a module of this system, without its packages."""
    packages = [
        os.path.dirname(os.path.abspath(path)) for path in (errors.__file__, records.__file__)
    ]
    return [sys.executable, "-c", _START.replace("MODULE", module), *packages, *arguments]


def serve(lists: BinaryIO, replies: BinaryIO, roots: Sequence[str]) -> None:
    """Read files until the input ends."""
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(list[FoundFile]).decode
    _write(replies, b"")
    while head := lists.read(LENGTH.size):
        sent: set[tuple[str, str]] = set()
        for found in decode(lists.read(LENGTH.unpack(head)[0])):
            _limit_cpu(found.size)
            file = read_file(found, roots)
            _keep_one_cover(file, sent)
            _write(replies, encode(file))


def _keep_one_cover(file: AudioFile, sent: set[tuple[str, str]]) -> None:
    """Remove the picture of a file if another one of its folder and album had one: a book has one
    cover, and its files mostly the same."""
    if file.tags is not None and file.tags.cover and file.tags.album:
        album = (os.path.dirname(file.found.path), file.tags.album)
        if album in sent:
            file.tags.cover, file.tags.cover_type = b"", ""
        sent.add(album)


def _write(replies: BinaryIO, frame: bytes) -> None:
    replies.write(LENGTH.pack(len(frame)) + frame)
    replies.flush()


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with contextlib.suppress(OSError):  # only Linux has it
        Path("/proc/self/oom_score_adj").write_text("1000")  # ended before the service is


def _limit_cpu(size: int) -> None:
    seconds = CPU_SECONDS_MAX + size // _HASHED_BYTES_PER_SECOND
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + seconds, hard))


def main(roots: Sequence[str]) -> None:
    replies, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may write to it
    _limit_memory()
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve(sys.stdin.buffer, replies, roots)
