"""Compressed ID3 frames are not read, in every version and container: a megabyte of them takes a
gigabyte."""

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import mutagen.id3
import pytest

from keyhouse_audiobooks.files.audio_tags import AUDIO_EXTENSIONS, BrokenFileError, read_tags

BOMB_BYTES = 4 * 1_024 * 1_024
MEMORY_BYTES_MAX = BOMB_BYTES // 2
"""More than a few copies of the file take."""

ID3_NAMES = sorted(mutagen.id3.Frames)


def _synchsafe(number: int) -> bytes:
    return bytes((number >> shift) & 0x7F for shift in (21, 14, 7, 0))


@cache
def _packed(content: bytes) -> bytes:
    return zlib.compress(content, 9)


def _frame(name: str, content: bytes, version: int, *, compressed: bool = False) -> bytes:
    flags = b"\0\0"
    if compressed:
        flags = b"\0\x09" if version == 4 else b"\0\x80"
        size = len(content) & 0x0FFFFFFF
        packed = _packed(content)
        content = (_synchsafe(size) if version == 4 else struct.pack(">I", size)) + packed
    length = _synchsafe(len(content)) if version == 4 else struct.pack(">I", len(content))
    return name.encode() + length + flags + content


def _tag(frames: bytes, version: int, flags: int = 0) -> bytes:
    return b"ID3" + bytes([version, 0, flags]) + _synchsafe(len(frames)) + frames


def _mp3(tag: bytes) -> bytes:
    return tag + (b"\xff\xfb\x90\x00" + bytes(413)) * 40


def _chunk(name: bytes, content: bytes, order: str) -> bytes:
    return name + struct.pack(f"{order}I", len(content)) + content + bytes(len(content) % 2)


def _wav(tag: bytes) -> bytes:
    kind = _chunk(b"fmt ", struct.pack("<HHIIHH", 1, 1, 8_000, 8_000, 1, 8), "<")
    body = b"WAVE" + kind + _chunk(b"data", bytes(8_000), "<") + _chunk(b"id3 ", tag, "<")
    return _chunk(b"RIFF", body, "<")


def _aiff(tag: bytes) -> bytes:
    rate = b"\x40\x0b\xfa\0\0\0\0\0\0\0"  # 8,000 as a number of 80 bits
    kind = _chunk(b"COMM", struct.pack(">hIh", 1, 8_000, 8) + rate, ">")
    body = b"AIFF" + kind + _chunk(b"SSND", bytes(8_008), ">") + _chunk(b"ID3 ", tag, ">")
    return _chunk(b"FORM", body, ">")


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {"mp3": _mp3, "wav": _wav, "aiff": _aiff}


def _read(path: Path) -> tuple[str, int]:
    """Return the title of a file, and the memory that it took to read it."""
    tracemalloc.start()
    try:
        try:
            title = read_tags(path).title
        except BrokenFileError:
            title = ""
        return title, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("container", "version", "is_nested"), [*product(CONTAINERS, (3, 4), (False, True))]
)
def test_a_compressed_frame_is_left_out_and_the_rest_of_the_file_is_read(
    container: str, version: int, is_nested: bool, tmp_path: Path
) -> None:
    """mutagen decompressed each of them without a limit: 1.6 MB were 4.5 GB."""
    bombs = _frame("TXXX", b"\0" + b"A" * BOMB_BYTES, version, compressed=True)
    bombs += _frame("APIC", b"A" * BOMB_BYTES, version, compressed=True)
    if is_nested:
        bombs = _frame("CHAP", b"one\0" + bytes(16) + bombs, version)
    frames = _frame("TIT2", b"\0The title", version) + bombs
    path = tmp_path / f"a.{container}"
    path.write_bytes(CONTAINERS[container](_tag(frames, version)))
    title, used = _read(path)
    assert title == "The title"
    assert used < MEMORY_BYTES_MAX


@pytest.mark.parametrize("extension", sorted(AUDIO_EXTENSIONS))
@pytest.mark.parametrize("container", CONTAINERS)
def test_no_kind_of_frame_is_decompressed_whatever_the_name_of_the_file(
    container: str, extension: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{extension}"
    content = b"\0" * BOMB_BYTES
    frames = b"".join(_frame(name, content, 4, compressed=True) for name in ID3_NAMES)
    path.write_bytes(CONTAINERS[container](_tag(frames, 4)))
    title, used = _read(path)
    assert title == "" and used < MEMORY_BYTES_MAX
