"""The process that reads audio files for a scan.

It gets lists of files on its standard input, and returns what it read of them on its standard
output: frames of MessagePack, each behind its length in four bytes. It ends with its input.

Starting it must be cheap, since a scan waits for it: `command` runs this module without the
`__init__` of its packages, which import a whole service. So it, and what it imports, import no
packages of Keyhouse, but modules that need nothing else.
"""

import contextlib
import os
import struct
import sys
from collections.abc import Sequence
from typing import BinaryIO, Final

import msgspec

from keyhouse.systems.audiobooks.files import AudioFile, FoundFile, read_file

__all__ = ["LENGTH", "command", "read_all"]

LENGTH: Final = struct.Struct(">I")

_START: Final = """
import sys, types
name, folders = "", sys.argv[1:]
for part, folder in zip(("keyhouse", "systems", "audiobooks"), folders):
    name = f"{name}.{part}" if name else part
    sys.modules[name] = package = types.ModuleType(name)
    package.__path__ = [folder]
from keyhouse.systems.audiobooks.reader_process import main
main()
"""


def command() -> list[str]:
    """Return the command that starts the process."""
    folder = os.path.dirname(os.path.abspath(__file__))
    systems = os.path.dirname(folder)
    return [sys.executable, "-c", _START, os.path.dirname(systems), systems, folder]


def read_all(chunk: Sequence[FoundFile]) -> list[AudioFile]:
    return [read_file(each) for each in chunk]


def serve(given: BinaryIO, replies: BinaryIO) -> None:
    """Read files until the input ends."""
    encode = msgspec.msgpack.Encoder().encode
    decode = msgspec.msgpack.Decoder(list[FoundFile]).decode
    while head := given.read(LENGTH.size):
        sent = encode(read_all(decode(given.read(LENGTH.unpack(head)[0]))))
        replies.write(LENGTH.pack(len(sent)) + sent)
        replies.flush()


def main() -> None:
    replies, sys.stdout = sys.stdout.buffer, sys.stderr  # nothing else may write to it
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve(sys.stdin.buffer, replies)
