"""Books as their files describe them: which files are one book, and what their tags and names say.

Files with one path (`folder_names`) and one album are a book. Tags come first; the names of folders
and files fill in what they leave out. Nothing here reads or writes the store: `scanner` does.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET, Struct

from keyhouse.errors import KeyFieldError, KeyhouseError
from keyhouse.keys import normal
from keyhouse.normalization import stream_safe
from keyhouse_audiobooks.books.isbn import isbn10, isbn13
from keyhouse_audiobooks.files.audio_files import AudioFile, below_root, natural
from keyhouse_audiobooks.files.audio_tags import AudioTags
from keyhouse_audiobooks.files.folder_names import PathNames, ScannedFolders, book_folder, names_of
from keyhouse_audiobooks.records import Segment, digest

__all__ = ["FILES_PER_COMMIT", "ScannedBook", "ScannedFile", "books_of", "playing_order"]

FILES_PER_COMMIT: Final = 200
TITLE_CHARS_MAX: Final = 200
UNTITLED: Final = "Untitled"


class ScannedBook(Struct):
    """Files of one book, by its path and album, and the `names` that its path has."""

    path: str
    names: PathNames
    source: str
    files: list[tuple[AudioFile, AudioTags]]

    @property
    def folders(self) -> list[Path]:
        """The folders that may have a cover: those of the files, and that of the discs."""
        own = [os.path.dirname(file.found.path) for file, _ in self.files]
        return [Path(folder) for folder in dict.fromkeys([*own, self.path])]

    @property
    def title(self) -> str:
        own = self._tags.title if len(self.files) == 1 else ""
        candidates = (self._tags.album, own, self.names.title)
        return next(filter(None, map(_name, candidates)), UNTITLED)

    @property
    def author(self) -> str:
        return _name(self._tags.author) or _name(self.names.author)

    @property
    def series(self) -> tuple[str, int | float | None]:
        """The name of the series, and the place in it. The names of folders tell it only if their
        author is the book's."""
        name, place = _name(self._tags.series), self._tags.series_part
        if not name and _normal(self.author) == _normal(self.names.author):
            name, place = _name(self.names.series), self.names.place
        return name, int(place) if place is not None and place == int(place) else place

    def values(self) -> dict[str, Any]:
        """Return the members of a Book that depend on no other record."""
        tags = self._tags
        return {
            "narrator": tags.narrator or None,
            "publisher": tags.publisher or None,
            "language": tags.language or None,
            "description": tags.description,
            "published_year": tags.year,
            "genres": list(dict.fromkeys(filter(_normal, tags.genres))) or UNSET,
            **_isbns(tags.isbn),
        }

    @property
    def _tags(self) -> AudioTags:
        return self.files[0][1]


class ScannedFile(Struct, frozen=True):
    """A file that was read: `segment_id` is that of the segment `before` it, or a new one."""

    file: AudioFile
    tags: AudioTags
    segment_id: str
    before: Segment | None

    @property
    def outcome(self) -> str:
        """Return the name of the count that it belongs to."""
        if self.before is None:
            return "added"
        return "changed" if self.before.file_path == self.file.found.path else "moved"

    def segment(self, segments: dict[str, Segment], book_id: str) -> Segment:
        """Return the segment of the file in a book that has these segments."""
        before = segments.get(self.segment_id) or self.before
        number = len(segments) + 1 if before is None else before.track_number
        superseded = None if before is None else before.superseded_by
        return Segment(
            id=self.segment_id,
            book_id=book_id,
            file_path=self.file.found.path,
            format=self.tags.format,
            size_bytes=self.file.found.size,
            duration_seconds=self.tags.duration_seconds,
            hash_sha256=self.file.sha256,
            track_number=number,
            total_tracks=1,
            active=superseded is None,
            superseded_by=superseded,
            created_at="" if before is None else before.created_at,
            title=self.tags.title or UNSET,
            mtime_ns=self.file.found.mtime_ns,
            tag_order=[self._disc(), self.tags.track or 0],
            chapters=self.tags.chapters or UNSET,
        )

    def _disc(self) -> int:
        return self.tags.disc or book_folder(os.path.dirname(self.file.found.path))[1] or 0


def books_of(
    read: Iterable[tuple[AudioFile, AudioTags]], folders: ScannedFolders, roots: Sequence[Path]
) -> Iterator[ScannedBook]:
    """Yield the books of some files; one of very many files in parts."""
    books: dict[tuple[str, str], list[tuple[AudioFile, AudioTags]]] = {}
    for file, tags in read:
        path = folders.book_path(file.found.path, tags)
        album = _normal(tags.album) or tags.album
        books.setdefault((path, album), []).append((file, tags))
    for (path, album), files in books.items():
        source = digest(f"{path}\0{album}")
        place = below_root(path, roots)
        names = names_of(path if place is None else str(place[0]), path)
        for start in range(0, len(files), FILES_PER_COMMIT):
            yield ScannedBook(path, names, source, files[start : start + FILES_PER_COMMIT])


def playing_order(segment: Segment) -> tuple[Any, ...]:
    """Return what segments are sorted by: disc and track of the tags, then the file's name."""
    name = os.path.basename(segment.file_path)
    return (not segment.active, segment.tag_order or [0, 0], natural(name), segment.file_path)


def _name(text: str) -> str:
    """Return a name that can be part of a key, or nothing."""
    text = stream_safe(text.strip()[:TITLE_CHARS_MAX].strip())
    return text if _normal(text) else ""


def _normal(text: str) -> str:
    """Return the normal form, or nothing for text that cannot be normalized: a file's tags must not
    fail the scan."""
    try:
        return normal(text)
    except KeyFieldError:
        return ""


def _isbns(text: str) -> dict[str, str]:
    for name, parse in (("isbn13", isbn13), ("isbn10", isbn10)):
        try:
            return {name: parse(text)} if text else {}
        except KeyhouseError:
            continue
    return {}
