"""Tags of audio files: duration, titles, people, series, chapters and cover. It reads files and
knows no store.

Each format has its own names for the same tag (ID3 frames, MP4 atoms, Vorbis comments); `_NAMES`
has them side by side. A compressed ID3 frame is not read: no usual program writes one, and mutagen
decompresses a megabyte to a gigabyte.
"""

import base64
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partialmethod
from pathlib import Path
from typing import Any, BinaryIO, Final

import mutagen
import mutagen.flac
from msgspec import Struct
from mutagen.aac import AAC
from mutagen.aiff import AIFF
from mutagen.asf import ASF, ASFTags
from mutagen.flac import FLAC, Picture
from mutagen.id3 import ID3, Frame, Frames, Frames_2_2
from mutagen.mp3 import MP3
from mutagen.mp4 import MP4, MP4Tags
from mutagen.oggflac import OggFLAC
from mutagen.oggopus import OggOpus
from mutagen.oggspeex import OggSpeex
from mutagen.oggvorbis import OggVorbis
from mutagen.wave import WAVE

from keyhouse.normalization import stream_safe
from keyhouse_audiobooks.records import Chapter

__all__ = [
    "AUDIO_EXTENSIONS",
    "MEDIA_TYPES",
    "UNREAD_EXTENSIONS",
    "AudioTags",
    "BrokenFileError",
    "image_type",
    "read_tags",
]

MEDIA_TYPES: Final[Mapping[str, str]] = {
    "mp3": "audio/mpeg",
    "m4b": "audio/mp4",
    "m4a": "audio/mp4",
    "mp4": "audio/mp4",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "ogg": "audio/ogg",
    "oga": "audio/ogg",
    "opus": "audio/ogg",
    "wav": "audio/wav",
    "aif": "audio/aiff",
    "aiff": "audio/aiff",
    "wma": "audio/x-ms-wma",
}
AUDIO_EXTENSIONS: Final = frozenset(MEDIA_TYPES)
UNREAD_EXTENSIONS: Final = frozenset(
    {"aa", "aax", "aaxc", "ac3", "amr", "ape", "dsf", "mka", "mpc", "ra", "tta", "webm", "wv"}
)
"""Audio of formats that are not read: a scan names them."""

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "title": ("TIT2", "\xa9nam", "title", "Title"),
    "album": ("TALB", "\xa9alb", "album", "WM/AlbumTitle"),
    "author": (
        "TPE2",
        "aART",
        "albumartist",
        "TPE1",
        "\xa9ART",
        "artist",
        "author",
        "WM/AlbumArtist",
        "Author",
    ),
    "narrator": (
        "TXXX:NARRATOR",
        "----:com.apple.iTunes:NARRATOR",
        "narrator",
        "TCOM",
        "\xa9wrt",
        "composer",
        "WM/Composer",
    ),
    "series": (
        "TXXX:SERIES",
        "----:com.apple.iTunes:SERIES",
        "series",
        "MVNM",
        "\xa9mvn",
        "mvnm",
        "movementname",
        "WM/ContentGroupDescription",
    ),
    "series_part": (
        "TXXX:SERIES-PART",
        "----:com.apple.iTunes:SERIES-PART",
        "series-part",
        "MVIN",
        "\xa9mvi",
        "mvin",
        "movement",
    ),
    "track": ("TRCK", "trkn", "tracknumber", "WM/TrackNumber"),
    "disc": ("TPOS", "disk", "discnumber", "WM/PartOfSet"),
    "year": ("TDRC", "TYER", "\xa9day", "date", "year", "WM/Year"),
    "genre": ("TCON", "\xa9gen", "genre", "WM/Genre"),
    "description": ("COMM", "desc", "\xa9cmt", "description", "comment", "Description"),
    "publisher": ("TPUB", "----:com.apple.iTunes:PUBLISHER", "publisher", "WM/Publisher"),
    "language": ("TLAN", "----:com.apple.iTunes:LANGUAGE", "language", "WM/Language"),
    "isbn": ("TXXX:ISBN", "----:com.apple.iTunes:ISBN", "isbn", "WM/ISBN"),
}
_TEXTS: Final = (
    *("title", "album", "author", "narrator", "series"),
    *("description", "publisher", "language", "isbn"),
)
"""Tags that are taken as they are."""
_IS_NAME: Final = {
    "id3": re.compile(r"[A-Z0-9]{4}(:.*)?"),
    "mp4": re.compile("\xa9.*|----:.*|aART|trkn|disk|desc"),
    "vorbis": re.compile(r"[a-z-]+"),
    "asf": re.compile(r"Title|Author|Description|WM/.*"),
}
_NAMES_BY_TYPE: Final = {
    kind: {
        tag: tuple(name for name in names if is_name.fullmatch(name))
        for tag, names in _NAMES.items()
    }
    for kind, is_name in _IS_NAME.items()
}
_TEXT_CHARS_MAX: Final = 10_000
_COVER_BYTES_MAX: Final = 20 * 1_024 * 1_024
_BREAKS: Final = re.compile("[\\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_CHAPTERS_MAX: Final = 5_000
_CHAPTER_CHARS_MAX: Final = 500


class BrokenFileError(Exception):
    """The file is not audio that can be read."""


class AudioTags(Struct, kw_only=True):
    """The tags of a file. A tag that it does not have is empty."""

    duration_seconds: float
    format: str
    title: str = ""
    album: str = ""
    author: str = ""
    narrator: str = ""
    series: str = ""
    series_part: float | None = None
    track: int | None = None
    disc: int | None = None
    year: int | None = None
    genres: list[str] = []
    description: str = ""
    publisher: str = ""
    language: str = ""
    isbn: str = ""
    chapters: list[Chapter] = []
    cover: bytes = b""
    cover_type: str = ""


def read_tags(path: Path, file: BinaryIO | None = None) -> AudioTags:
    """Read a file, which may be open. Raises BrokenFileError if it is empty or not audio."""
    try:
        with nullcontext(file) if file is not None else path.open("rb") as opened:
            media: Any = _opened(path, opened)
            duration = 0.0 if media is None else _duration(media, opened)
        if media is not None and duration > 0:
            return _tags_of(path, media, duration)
    except MemoryError:
        raise BrokenFileError("needs more memory than the tags of a file may") from None
    except Exception as error:  # damaged files raise errors of many types
        raise BrokenFileError(f"{type(error).__name__}: {error}") from error
    raise BrokenFileError("not an audio file, or without any audio")


def _duration(media: Any, file: BinaryIO) -> float:
    """Return the length in seconds. The header of a WAV file that was cut off, or written as a
    stream, has another one than its bytes: those count."""
    length = float(getattr(media.info, "length", 0.0) or 0.0)
    bits = float(getattr(media.info, "bitrate", 0.0) or 0.0)
    if isinstance(media, WAVE) and bits:
        return min(length, 8 * file.seek(0, os.SEEK_END) / bits)
    return length


def _opened(path: Path, file: BinaryIO) -> Any:
    """Read a file by its first bytes; if they do not tell, by its name. Returns None if neither
    names a format. Raises the error of the format that is most likely."""
    head = file.read(128)
    errors: dict[Any, Exception] = {}
    for kind in _likely(path, file, head):
        if kind not in errors:
            file.seek(0)
            try:
                return kind(file)
            except mutagen.MutagenError as error:
                errors[kind] = error
    if errors:
        raise next(iter(errors.values()))
    return None


def _likely(path: Path, file: BinaryIO, head: bytes) -> Iterator[Any]:
    """Yield formats that a file may have, the likely ones first."""
    yield from (kind for kind, is_kind in _KINDS.items() if is_kind(head))
    kinds = (*_KINDS, *_OTHER_KINDS)
    scores = {kind: kind.score(path.name, file, head) for kind in kinds}
    yield from sorted(
        (kind for kind in kinds if scores[kind]), key=scores.__getitem__, reverse=True
    )


class _Uncompressed(Frame):
    """A frame of ID3v2.3 or 2.4 that is left unknown if it is compressed."""

    @classmethod
    def _fromData(cls, header: Any, flags: int, data: bytes) -> Any:  # of mutagen
        is_newer = header.version >= (2, 4, 0)
        if flags & (cls.FLAG24_COMPRESS if is_newer else cls.FLAG23_COMPRESS):
            raise NotImplementedError  # mutagen leaves the frame unknown
        return super()._fromData(header, flags, data)  # type: ignore[no-untyped-call]


_FRAMES: Final[Mapping[str, Any]] = Frames_2_2 | {
    name: type(name, (_Uncompressed, kind), {}) for name, kind in Frames.items()
}


def _without_compressed(kind: Any) -> Any:
    """Return the reader of a format with ID3 tags, which reads no compressed frame."""
    reads = partialmethod(kind.__init__, known_frames=_FRAMES)
    return type(kind.__name__, (kind,), {"__init__": reads})


_Mp3, _Aiff, _Wave = map(_without_compressed, (MP3, AIFF, WAVE))

_KINDS: Final[Mapping[Any, Callable[[bytes], bool]]] = {
    MP4: lambda head: head[4:8] == b"ftyp",
    FLAC: lambda head: head.startswith(b"fLaC"),
    OggVorbis: lambda head: head.startswith(b"OggS") and b"\x01vorbis" in head,
    OggOpus: lambda head: head.startswith(b"OggS") and b"OpusHead" in head,
    _Wave: lambda head: head.startswith(b"RIFF") and head[8:12] == b"WAVE",
    _Mp3: lambda head: head[:2] in (b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2"),
}
_OTHER_KINDS: Final = (_Aiff, AAC, ASF, OggFLAC, OggSpeex)
_OGG_EXTENSIONS: Final = ("ogg", "oga", "opus")
_EXTENSIONS: Final[Mapping[Any, tuple[str, ...]]] = {
    MP4: ("m4b", "m4a", "mp4"),
    FLAC: ("flac",),
    WAVE: ("wav",),
    MP3: ("mp3",),
    AIFF: ("aiff", "aif"),
    AAC: ("aac",),
    ASF: ("wma",),
}
"""Of a format, the usual one first."""


def _format(path: Path, media: Any) -> str:
    """Return the format of a file, by its content: the name may be that of another one."""
    named = path.suffix.lstrip(".").casefold()
    for kind, extensions in _EXTENSIONS.items():
        if isinstance(media, kind):
            return named if named in extensions else extensions[0]
    return named if named in _OGG_EXTENSIONS else _OGG_EXTENSIONS[0]


def _tags_of(path: Path, media: Any, duration: float) -> AudioTags:
    tags = _by_name(media.tags)
    known = _NAMES_BY_TYPE.get(_type_of(tags), _NAMES)
    texts = {
        name: text if name == "description" else _line(text)
        for name, text in ((name, _first(tags, names)) for name, names in known.items())
    }
    cover, cover_type = _cover(media, tags)
    return AudioTags(
        duration_seconds=round(duration, 3),
        format=_format(path, media),
        series_part=_number(texts["series_part"]),
        track=_integer(texts["track"]),
        disc=_integer(texts["disc"]),
        year=_year(texts["year"]),
        genres=[part.strip() for part in re.split(r"[;/,]", texts["genre"]) if part.strip()],
        chapters=_chapters(media, tags, duration),
        cover=cover,
        cover_type=cover_type,
        **{name: texts[name] for name in _TEXTS},
    )


def _by_name(tags: Any) -> Any:
    """Return tags that are found by their names. Vorbis comments are a list of pairs."""
    if not hasattr(tags, "vendor"):
        return tags or {}
    values: dict[str, list[str]] = {}
    for name, value in tags:
        values.setdefault(name.lower(), []).append(value)
    return values


def _type_of(tags: Any) -> str:
    if isinstance(tags, ID3):
        return "id3"
    if isinstance(tags, ASFTags):
        return "asf"
    return "mp4" if isinstance(tags, MP4Tags) else "vorbis" if type(tags) is dict else ""


def _first(tags: Any, names: Iterable[str]) -> str:
    for name in names:
        if name == "COMM" and hasattr(tags, "getall"):
            value: Any = tags.getall("COMM")
        else:
            try:
                value = tags.get(name)
            except (KeyError, ValueError):  # a name that is invalid in this format
                value = None
        text = _text(value)
        if text:
            return text
    return ""


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        value = value[0] if value else None
    if isinstance(value, tuple):  # trkn: number and total
        value = value[0]
    if value is None or value == 0:
        return ""
    if isinstance(value, bytes):
        value = bytes(value).decode("utf-8", "replace")
    text = str(value)[:_TEXT_CHARS_MAX].replace("\0", "; ").encode("utf-8", "replace").decode()
    return stream_safe(text.strip())


def _line(text: str) -> str:
    """Return a text as one line: line breaks and control characters become spaces."""
    return text if text.isprintable() else _BREAKS.sub(" ", text).strip()


def _number(text: str) -> float | None:
    match = re.search(r"\d{1,5}(?:[.,]\d{1,3})?", text)
    return None if match is None else float(match[0].replace(",", "."))


def _integer(text: str) -> int | None:
    match = re.match(r"\s*(\d{1,6})", text)
    return None if match is None else int(match[1])


def _year(text: str) -> int | None:
    match = re.search(r"\d{4}", text)
    return None if match is None else int(match[0])


def _chapters(media: Any, tags: Any, duration: float) -> list[Chapter]:
    starts = sorted(_chapter_starts(media, tags))[:_CHAPTERS_MAX]
    starts = [(start, title) for start, title in starts if 0 <= start < duration]
    ends = [*(start for start, _ in starts[1:]), duration][: len(starts)]
    return [
        Chapter(
            title=_line(title)[:_CHAPTER_CHARS_MAX] or f"Chapter {number}",
            start_seconds=round(start, 3),
            end_seconds=round(end, 3),
        )
        for number, ((start, title), end) in enumerate(zip(starts, ends, strict=True), 1)
    ]


def _chapter_starts(media: Any, tags: Any) -> Iterable[tuple[float, str]]:
    if getattr(media, "chapters", None):  # MP4
        yield from ((float(each.start), _text(each.title)) for each in media.chapters)
    elif hasattr(tags, "getall"):  # ID3
        for frame in tags.getall("CHAP"):
            yield frame.start_time / 1_000, _text(frame.sub_frames.get("TIT2"))
    elif hasattr(tags, "keys"):  # Vorbis comments
        for name in tags.keys():  # noqa: SIM118  # iterating over the tags yields pairs
            if match := re.fullmatch(r"chapter(\d{1,4})", name, re.IGNORECASE):
                time = re.fullmatch(r"(\d+):(\d+):(\d+(?:\.\d+)?)", _text(tags.get(name)))
                if time is not None:
                    start = int(time[1]) * 3_600 + int(time[2]) * 60 + float(time[3])
                    yield start, _first(tags, (f"chapter{match[1]}name",))


def _cover(media: Any, tags: Any) -> tuple[bytes, str]:
    pictures: list[Any] = list(getattr(media, "pictures", None) or ())
    if type(tags) is dict:
        pictures += _vorbis_pictures(tags.get("metadata_block_picture", ()))
    if hasattr(tags, "getall"):
        pictures += tags.getall("APIC")
    for picture in pictures:
        if 0 < len(picture.data) <= _COVER_BYTES_MAX:
            return bytes(picture.data), image_type(picture.data)
    for picture in _mp4_covers(tags):
        if 0 < len(picture) <= _COVER_BYTES_MAX:
            return bytes(picture), image_type(picture)
    return b"", ""


def _vorbis_pictures(texts: Iterable[str]) -> Iterable[Picture]:
    for text in texts:
        try:
            picture: Any = Picture
            yield picture(base64.b64decode(text))
        except (ValueError, mutagen.flac.error):  # of a damaged comment
            continue


def _mp4_covers(tags: Any) -> Iterable[bytes]:
    try:
        return tags.get("covr") or ()
    except (KeyError, ValueError):
        return ()


def image_type(content: bytes) -> str:
    """Return the type by the first bytes: what a tag says may be wrong, or harmful."""
    if content.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if content.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return "image/jpeg" if content.startswith(b"\xff\xd8\xff") else ""
