# mypy: disable-error-code="no-untyped-call"
"""Generated audio files for demonstrations and tests: a wav of a real tone, and the smallest files
of other formats that have a duration, tags, chapters and a cover.

The mp3, flac and opus are silence. Files of ogg (Vorbis) and m4b have headers and no frames:
players reject them.
"""

import base64
import math
import struct
import wave
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from mutagen.flac import FLAC, Picture
from mutagen.id3 import APIC, CHAP, TALB, TIT2, TPE1, TRCK, TXXX
from mutagen.mp3 import MP3
from mutagen.mp4 import MP4, MP4Cover, MP4FreeForm
from mutagen.ogg import OggPage
from mutagen.oggopus import OggOpus
from mutagen.oggvorbis import OggVorbis
from mutagen.wave import WAVE

__all__ = ["FORMATS", "png", "write_audio"]

FORMATS: Final = ("mp3", "m4b", "flac", "ogg", "opus", "wav")

Chapters = Sequence[tuple[float, str]]

_RATE: Final = 8_000
_MP3_FRAME: Final = b"\xff\xfb\x90\x00" + bytes(413)
_MP3_FRAME_SECONDS: Final = 1_152 / 44_100
_FLAC_BLOCK: Final = 4_096
_OPUS_SILENCE: Final = b"\xf8\xff\xfe"
"""A packet of 20 milliseconds, mono."""
_FREEFORM: Final = "----:com.apple.iTunes:"


def write_audio(
    path: Path,
    seconds: float,
    *,
    tags: Mapping[str, str] | None = None,
    chapters: Chapters = (),
    cover: bytes = b"",
) -> Path:
    """Write a file of the format that its name says. `tags` may have title, album, author,
    narrator, series, series_part and track."""
    path.parent.mkdir(parents=True, exist_ok=True)
    format = path.suffix.lstrip(".")
    given = dict(tags or {})
    if format == "wav":
        _write_wav(path, seconds)
        file: Any = WAVE(path)
        file.add_tags()
        _add_id3(file, given, chapters, cover)
    elif format == "mp3":
        path.write_bytes(_MP3_FRAME * max(2, round(seconds / _MP3_FRAME_SECONDS)))
        file = MP3(path)
        file.add_tags()
        _add_id3(file, given, chapters, cover)
    elif format == "m4b":
        path.write_bytes(_mp4(seconds, chapters))
        file = MP4(path)
        _add_mp4(file, given, cover)
    elif format == "flac":
        path.write_bytes(_flac(seconds))
        file = FLAC(path)
        _add_vorbis(file, given, chapters)
        if cover:
            file.add_picture(_picture(cover))
    else:
        _write_ogg(path, seconds, is_opus=format == "opus")
        file = OggOpus(path) if format == "opus" else OggVorbis(path)
        _add_vorbis(file, given, chapters)
        if cover:
            file["metadata_block_picture"] = [
                base64.b64encode(_picture(cover).write()).decode("ascii")
            ]
    file.save()
    return path


def _picture(cover: bytes) -> Picture:
    picture = Picture()
    picture.data, picture.mime, picture.type = cover, "image/png", 3
    return picture


@cache
def png(red: int, green: int, blue: int, side: int = 320) -> bytes:
    """Return a square picture in shades of one colour: a disc above a horizon."""

    def chunk(name: bytes, content: bytes) -> bytes:
        body = name + content
        return struct.pack(">I", len(content)) + body + struct.pack(">I", zlib.crc32(body))

    def shade(part: float) -> bytes:
        return bytes(min(255, round(value * part)) for value in (red, green, blue))

    rows = bytearray()
    for y in range(side):
        half = math.sqrt(max(0.0, (side * 0.24) ** 2 - (y - side * 0.44) ** 2))
        sky, disc = shade(0.65 + 0.6 * y / side), round(half) if y < side * 0.68 else 0
        edge = (sky if y < side * 0.68 else shade(0.5)) * (side // 2 - disc)
        rows += b"\0" + edge + shade(1.7) * (2 * disc) + edge
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(bytes(rows)))
        + chunk(b"IEND", b"")
    )


def _write_wav(path: Path, seconds: float) -> None:
    wavelength = [round(6_000 * math.sin(2 * math.pi * 400 * n / _RATE)) for n in range(20)]
    tone = struct.pack("<20h", *wavelength)
    frames = round(seconds * _RATE)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(_RATE)
        file.writeframes((tone * (frames // 20 + 1))[: 2 * frames])


def _add_id3(file: Any, tags: Mapping[str, str], chapters: Chapters, cover: bytes) -> None:
    frames = {"title": TIT2, "album": TALB, "author": TPE1, "track": TRCK}
    for name, frame in frames.items():
        if name in tags:
            file.tags.add(frame(encoding=3, text=tags[name]))
    for name, text in (
        ("narrator", "NARRATOR"),
        ("series", "SERIES"),
        ("series_part", "SERIES-PART"),
    ):
        if name in tags:
            file.tags.add(TXXX(encoding=3, desc=text, text=tags[name]))
    for number, (start, title) in enumerate(chapters):
        start_ms = round(start * 1_000)
        file.tags.add(
            CHAP(
                element_id=f"chp{number}",
                start_time=start_ms,
                end_time=start_ms + 1,
                sub_frames=[TIT2(encoding=3, text=title)],
            )
        )
    if cover:
        file.tags.add(APIC(encoding=3, mime="image/png", type=3, desc="cover", data=cover))


def _add_vorbis(file: Any, tags: Mapping[str, str], chapters: Chapters) -> None:
    names = {"author": "artist", "series_part": "series-part", "track": "tracknumber"}
    if file.tags is None:
        file.add_tags()
    for name, value in tags.items():
        file[names.get(name, name)] = value
    for number, (start, title) in enumerate(chapters, 1):
        minutes, rest = divmod(start, 60)
        file[f"CHAPTER{number:03d}"] = (
            f"{int(minutes) // 60:02d}:{int(minutes) % 60:02d}:{rest:06.3f}"
        )
        file[f"CHAPTER{number:03d}NAME"] = title


def _add_mp4(file: Any, tags: Mapping[str, str], cover: bytes) -> None:
    if file.tags is None:
        file.add_tags()
    names = {"title": "\xa9nam", "album": "\xa9alb", "author": "\xa9ART"}
    for name, atom in names.items():
        if name in tags:
            file[atom] = tags[name]
    for name in ("narrator", "series", "series_part"):
        if name in tags:
            label = name.upper().replace("_", "-")
            file[_FREEFORM + label] = MP4FreeForm(tags[name].encode())
    if "track" in tags:
        file["trkn"] = [(int(tags["track"]), 0)]
    if cover:
        file["covr"] = [MP4Cover(cover, MP4Cover.FORMAT_PNG)]


def _flac(seconds: float) -> bytes:
    samples = round(seconds * _RATE)
    packed = (_RATE << 44) | (0 << 41) | (15 << 36) | samples
    size = _FLAC_BLOCK
    info = struct.pack(">HH", size, size) + bytes(6) + packed.to_bytes(8, "big") + bytes(16)
    frames = (
        _flac_frame(number, min(size, samples - start))
        for number, start in enumerate(range(0, samples, size))
    )
    return b"fLaC" + bytes([0x80]) + len(info).to_bytes(3, "big") + info + b"".join(frames)


def _flac_frame(number: int, samples: int) -> bytes:
    """Return a frame of silence, mono: one constant sample (RFC 9639, 9)."""
    head = b"\xff\xf8\x70\x08" + chr(number).encode() + struct.pack(">H", samples - 1)
    frame = head + bytes([_crc(head, 8, 0x07)]) + bytes(3)
    return frame + _crc(frame, 16, 0x8005).to_bytes(2, "big")


def _crc(content: bytes, bits: int, polynomial: int) -> int:
    checksum, top = 0, 1 << (bits - 1)
    for byte in content:
        checksum ^= byte << (bits - 8)
        for _ in range(8):
            checksum = (checksum << 1) ^ (polynomial if checksum & top else 0)
        checksum &= (1 << bits) - 1
    return checksum


def _write_ogg(path: Path, seconds: float, *, is_opus: bool) -> None:
    empty = struct.pack("<I", 0) + struct.pack("<I", 0)
    if is_opus:
        head = b"OpusHead" + struct.pack("<BBHIhB", 1, 1, 0, 48_000, 0, 0)
        packets = [head, b"OpusTags" + empty]
        rate = 48_000
    else:
        head = b"\x01vorbis" + struct.pack("<IBIiiiBB", 0, 1, _RATE, 0, 64_000, 0, 0xB8, 1)
        packets = [head, b"\x03vorbis" + empty + b"\x01", b"\x05vorbis"]
        rate = _RATE
    groups: list[tuple[float, list[bytes]]] = [(0, packets[:1]), (0, packets[1:])]
    if is_opus:
        groups += [
            (min(second + 1, seconds), [_OPUS_SILENCE] * 50) for second in range(math.ceil(seconds))
        ]
    else:
        groups.append((seconds, [b"\0"]))
    pages = []
    for number, (until, group) in enumerate(groups):
        page = OggPage()
        page.serial, page.sequence, page.packets = 1, number, group
        page.position = round(until * rate)
        page.first, page.last = number == 0, number == len(groups) - 1
        pages.append(page.write())
    path.write_bytes(b"".join(pages))


def _mp4(seconds: float, chapters: Chapters) -> bytes:
    def atom(name: bytes, *content: bytes) -> bytes:
        body = b"".join(content)
        return struct.pack(">I", 8 + len(body)) + name + body

    length = round(seconds * 1_000)
    mvhd = atom(b"mvhd", bytes(12), struct.pack(">II", 1_000, length), bytes(80))
    mdhd = atom(b"mdhd", bytes(12), struct.pack(">II", 1_000, length), bytes(4))
    hdlr = atom(b"hdlr", bytes(8), b"soun", bytes(13))
    track = atom(b"trak", atom(b"mdia", mdhd, hdlr))
    marks = b"".join(
        struct.pack(">QB", round(start * 10_000_000), len(title.encode())) + title.encode()
        for start, title in chapters
    )
    chpl = atom(b"chpl", struct.pack(">BBBBIB", 1, 0, 0, 0, 0, len(chapters)), marks)
    user = atom(b"udta", chpl) if chapters else b""
    return (
        atom(b"ftyp", b"M4B ", bytes(4), b"M4B isom")
        + atom(b"moov", mvhd, track, user)
        + atom(b"mdat", bytes(16))
    )
