"""Names of folders and files, which describe a book where tags do not. It reads no files.

    Author/Series/Title/01.mp3, 02.mp3     parts of one book, in its folder
    Author/Title/CD 1/01.mp3               a folder of a disc is part of the book above it
    Author/Series/Emma.m4b, Persuasion.m4b a book each: nothing says that they are parts

As in Audiobookshelf, the folders above a title are its author and, between them, its series; a
number in front of a title, `2 - Title` or `Book 2 - Title`, is its place in the series.
"""

import os
import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from keyhouse_audiobooks.files.audio_files import AudioFile, FoundFile
from keyhouse_audiobooks.files.audio_tags import AudioTags
from keyhouse_audiobooks.records import Segment

__all__ = [
    "PathNames",
    "ScannedFolders",
    "book_folder",
    "is_book_folder",
    "names_of",
    "tagged_disc_folder",
]

_DISC: Final = re.compile(r"\b(?:cd|dis[ck])[\s\-_.#]*(\d{1,3})[)\]]?\Z", re.IGNORECASE)
_NUMBER_REVERSED: Final = re.compile(r"\)?(\d{1,3})0*[\s\-_.(]*(.*)", re.DOTALL)
"""A number at the end of a name, read from there: from the start, each place would be tried."""
_SEPARATORS: Final = "".join(each for each in map(chr, range(0x3001)) if each.isspace()) + "-_.,(["
_PART: Final = re.compile(
    r"[\W_]*(?:\d|(?:part|chapter|track|side|cd|dis[ck]|teil|kapitel)\b)", re.IGNORECASE
)
_PLACE: Final = re.compile(
    r"(?:(?:vol|vol\.|volume|book)\s+)?(?P<place>\d{1,4}(?:\.\d{1,2})?)(?:\s+-\s+|\.\s+|\s*$)"
    r"(?P<title>.*)",
    re.IGNORECASE,
)
_NUMBER_AT_END: Final = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,2})?)$")
_WORD_CHARS_MIN: Final = 4


class PathNames(Struct, frozen=True):
    """Names that a path has; empty if it has none."""

    title: str
    author: str = ""
    series: str = ""
    place: float | None = None


def book_folder(folder: str) -> tuple[str, int | None]:
    """Return the folder of the book, and the number of the disc if this is the folder of one:
    `Title/CD 1` is in `Title`, and so is `Title (Disc 2)`, whether there is such a folder or not.
    """
    above, name = os.path.split(folder)
    match = _DISC.search(name)
    if match is None:
        return folder, None
    title = name[: match.start()].rstrip(_SEPARATORS)
    return os.path.join(above, title) if title else above, int(match[1])


def tagged_disc_folder(folder: str, discs: set[int]) -> str:
    """Return the folder of the book if this one has the number of the only disc in it, by the tags:
    `Title/1` and `Title/2`. Else the folder itself."""
    above, name = os.path.split(folder)
    match = _NUMBER_REVERSED.fullmatch(name[::-1])
    if match is None or discs != {int(match[1][::-1])}:
        return folder
    title = match[2][::-1]
    return os.path.join(above, title) if title else above


def is_book_folder(folder: str, names: Iterable[str]) -> bool:
    """Return whether the audio files of a folder are parts of one book, by their names: numbered
    ones are, and a single one that is named like its folder."""
    title = os.path.basename(folder)
    stems = [os.path.splitext(name)[0] for name in names]
    if any(_PART.match(_without(stem, title)) for stem in stems):
        return True
    return len(stems) == 1 and bool(_words(stems[0]) & _words(title))


def names_of(root: str, path: str) -> PathNames:
    """Return the names of a book by its path: that of its folder, or of its only file without the
    extension."""
    if path == root:
        return PathNames(title=os.path.basename(root))
    parts = os.path.relpath(path, root).split(os.sep)
    title = parts[-1]
    author = parts[-3] if len(parts) > 2 else parts[-2] if len(parts) > 1 else ""
    if len(parts) <= 2:
        return PathNames(title=title, author=author)
    match = _PLACE.fullmatch(title)
    if match is not None and match["title"]:
        return PathNames(
            title=match["title"], author=author, series=parts[-2], place=float(match["place"])
        )
    number = _NUMBER_AT_END.search(title)
    place = None if number is None else float(number[1])
    return PathNames(title=title, author=author, series=parts[-2], place=place)


def _without(stem: str, title: str) -> str:
    """Return the rest of a name that begins with the title of the folder."""
    begins = stem.casefold().startswith(title.casefold())
    return stem[len(title) :] if begins and len(stem) > len(title) else stem


def _words(text: str) -> set[str]:
    words = re.findall(r"[^\W_]+", text.casefold())
    return {word for word in words if len(word) >= _WORD_CHARS_MIN} or set(words)


class ScannedFolders:
    """The names of all files, and the discs of their tags, by folder."""

    def __init__(self, files: list[FoundFile], known: dict[str, Segment]) -> None:
        self._names: dict[str, list[str]] = {}
        self._discs: dict[str, set[int]] = {}
        self._is_book: dict[str, bool] = {}
        for each in files:
            folder, name = os.path.split(each.path)
            self._names.setdefault(folder, []).append(name)
        for path, segment in known.items():
            if segment.tag_order:
                self._discs.setdefault(os.path.dirname(path), set()).add(segment.tag_order[0])

    def add_discs(self, read: list[AudioFile]) -> None:
        for each in read:
            if each.tags is not None:
                folder = os.path.dirname(each.found.path)
                self._discs.setdefault(folder, set()).add(each.tags.disc or 0)

    def book_path(self, path: str, tags: AudioTags) -> str:
        """Return the path of the book of a file: its folder, or one above, or the file itself,
        without its extension."""
        folder = os.path.dirname(path)
        above, disc = book_folder(folder)
        if disc is not None:
            return above
        if tags.album:
            return tagged_disc_folder(folder, self._discs.get(folder, set()))
        if tags.track is not None or self._holds_one_book(folder):
            return folder
        return os.path.splitext(path)[0]

    def _holds_one_book(self, folder: str) -> bool:
        is_book = self._is_book.get(folder)
        if is_book is None:
            is_book = self._is_book[folder] = is_book_folder(folder, self._names.get(folder, ()))
        return is_book
