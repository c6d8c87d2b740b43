"""The measured keyspace: a record with five derived rows, and the same rows written by hand."""

from typing import Any, Final

import msgspec

from keyhouse import Index, Record, Schema, Space, normal, per_write

WRITERS: Final = 64
SPACE: Final = "bench"


class Track(msgspec.Struct, kw_only=True):
    """About 300 bytes of JSON, like the records of the five systems."""

    id: str
    title: str
    artist_id: str
    album_id: str
    position: int
    year: int
    genre: str
    description: str


BY_ARTIST = Index("idx:track:artist:{artist_id:ulid}:{id:ulid}")
BY_ALBUM = Index("idx:track:album:{album_id:ulid}:{position:010d}:{id:ulid}")
BY_TITLE = Index("idx:track:title:{title:norm}:{id:ulid}")
BY_YEAR = Index("idx:track:year:{year:04d}:{id:ulid}")
BY_GENRE = Index("idx:track:genre:{genre:norm}:{id:ulid}")

TRACK = Record(Track, "t:{id:ulid}", BY_ARTIST, BY_ALBUM, BY_TITLE, BY_YEAR, BY_GENRE)
SCHEMA = Schema("tracks", TRACK, space=Space("a library"))

NOTE: Record[Any] = Record(Any, "note:{name}", name="note", expiry=per_write())
NOTES = Schema("notes", NOTE, space=Space("a plugin"))
NOTE_VALUE: Final = {"text": "x" * 100}


def track(id: str, number: int, artist: str) -> Track:
    return Track(
        id=id,
        title=f"Track {number} of the Evening",
        artist_id=artist,
        album_id=artist,
        position=number % 10_000,
        year=1950 + number % 70,
        genre="Post Rock",
        description=(
            "A slow build over nine minutes, recorded live in one take; the bells are real."
        ),
    )


def rows_by_hand(value: Track) -> list[tuple[str, bytes]]:
    """Return the six rows that the store writes for this record."""
    id = value.id
    return [
        (f"t:{id}", msgspec.json.encode(value)),
        (f"idx:track:artist:{value.artist_id}:{id}", b"1"),
        (f"idx:track:album:{value.album_id}:{value.position:010d}:{id}", b"1"),
        (f"idx:track:title:{normal(value.title)}:{id}", b"1"),
        (f"idx:track:year:{value.year:04d}:{id}", b"1"),
        (f"idx:track:genre:{normal(value.genre)}:{id}", b"1"),
    ]
