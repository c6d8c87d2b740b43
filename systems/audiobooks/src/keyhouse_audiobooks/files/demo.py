"""A small library of generated audio, to try everything at once: several formats, chapters, covers,
a series with the positions 1, 1.5 and 2, and a broken file."""

from pathlib import Path
from typing import Any, Final

from keyhouse.errors import UsageError
from keyhouse_audiobooks.files.generated_audio import png, write_audio

__all__ = ["DEMO_BOOKS", "write_demo"]

_AUTHOR: Final = "Ada Example"
_SERIES: Final = "The Lighthouse"

DEMO_BOOKS: Final[tuple[dict[str, Any], ...]] = (
    {"title": "The Lamp", "part": "1", "format": "wav", "files": 3, "colour": (180, 60, 40)},
    {"title": "The Fog", "part": "1.5", "format": "m4b", "files": 1, "colour": (70, 90, 130)},
    {"title": "The Storm", "part": "2", "format": "mp3", "files": 4, "colour": (40, 110, 80)},
    {"title": "A Walk: Notes", "part": "", "format": "flac", "files": 2, "colour": (150, 120, 40)},
    {"title": "Short Stories", "part": "", "format": "ogg", "files": 2, "colour": None},
    {"title": "Poems", "part": "", "format": "opus", "files": 1, "colour": None},
)


def write_demo(folder: Path, *, seconds: float = 30.0) -> int:
    """Write the library into a new or empty folder, and return the number of files."""
    if folder.exists() and any(folder.iterdir()):
        raise UsageError("The folder is not empty: name a new one.", folder=str(folder))
    written = 0
    for book in DEMO_BOOKS:
        place = folder / _AUTHOR / book["title"].replace(":", "")
        colour = book["colour"]
        for track in range(1, book["files"] + 1):
            tags = {
                "title": f"{book['title']}, part {track}",
                "album": book["title"],
                "author": _AUTHOR,
                "narrator": "Nora Voice",
                "track": str(track),
            }
            if book["part"]:
                tags |= {"series": _SERIES, "series_part": book["part"]}
            chapters = [(0.0, f"Chapter {2 * track - 1}"), (seconds / 2, f"Chapter {2 * track}")]
            write_audio(
                place / f"{track:02d}.{book['format']}",
                seconds,
                tags=tags,
                chapters=chapters,
                cover=b"" if colour is None else png(*colour),
            )
            written += 1
    (folder / "broken.mp3").write_bytes(b"This is not audio.")
    return written + 1
