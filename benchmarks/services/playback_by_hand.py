"""`python -m benchmarks.services.playback_by_hand FOLDER`: a playback position, written by hand.

It reads what the service reads (session, user, book, durations, segment, place) and writes what it
writes: an event, the place, the newest event, and the seconds of listener and book.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.services.app_process import run, serve
from benchmarks.services.by_hand import UPSERT, Rows, Write, body_of, encode, respond
from keyhouse import SystemClock, UlidSource

_ADD = (
    "INSERT INTO rows(space, key, value, revision) VALUES(?, ?, ?, ?) ON CONFLICT(space, key)"
    " DO UPDATE SET value = CAST(CAST(value AS INTEGER) + CAST(excluded.value AS INTEGER) AS BLOB),"
    " revision = excluded.revision"
)
_SPACE = "main"
_SECONDS = 1


class Position(msgspec.Struct):
    segment_id: str
    position_seconds: float


class Place(msgspec.Struct):
    segment_id: str
    position_seconds: float
    percent_complete: float
    updated_at: int


class Session(msgspec.Struct):
    user_id: str


class Library(msgspec.Struct):
    """A stored book, its durations or its segment."""

    id: str
    duration_seconds: float = 36_000.0


_position = msgspec.json.Decoder(Position).decode
_place = msgspec.json.Decoder(Place).decode
_session = msgspec.json.Decoder(Session).decode
_library = msgspec.json.Decoder(Library).decode


class PlaybackByHand:
    def __init__(self, folder: Path) -> None:
        self._rows = Rows(folder / "rows.db")
        self._clock = SystemClock()
        self._ids = UlidSource(self._clock)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        token = next(value for name, value in scope["headers"] if name == b"authorization")
        digest = hashlib.sha256(token).hexdigest()
        book_id = scope["path"].split("/")[-2]
        body = _position(await body_of(receive))
        session = self._rows.get(_SPACE, f"session:{digest}")
        if session is None:
            session = await self._sign_in(digest, book_id, body.segment_id)
        user_id = _session(session).user_id
        assert self._rows.get(_SPACE, f"user:{user_id}") is not None
        for key in (f"book:{book_id}", f"durations:{book_id}", f"segment:{body.segment_id}"):
            _library(self._rows.get(_SPACE, key) or b"")
        at = f"{user_id}:{book_id}"
        before = self._rows.get(_SPACE, f"progress:{at}")
        if before is not None:
            _place(before)
        now = self._clock.now()
        percent = round(100 * body.position_seconds / 36_000, 2)
        place = encode(Place(body.segment_id, body.position_seconds, percent, now))
        event = f"play:{at}:{self._ids.new()}"
        revision = self._rows.revision + 1
        seconds = b"%d" % _SECONDS
        writes: list[Write] = [
            (UPSERT, (_SPACE, event, encode(body), revision)),
            (UPSERT, (_SPACE, f"progress:{at}", place, revision)),
            (UPSERT, (_SPACE, f"newest:{at}", encode(event), revision)),
            (_ADD, (_SPACE, f"seconds:user:{user_id}", seconds, revision)),
            (_ADD, (_SPACE, f"seconds:book:{book_id}", seconds, revision)),
        ]
        await self._rows.commit(_SPACE, writes, [str(values[1]) for _, values in writes])
        await respond(send, b'{"data":%b}' % place[:-1] + b',"x":{}}}')

    async def _sign_in(self, digest: str, book_id: str, segment_id: str) -> bytes:
        """Write the rows that the service has from its start."""
        session = encode(Session(digest[:8]))
        rows = {
            f"session:{digest}": session,
            f"user:{digest[:8]}": b"{}",
            f"book:{book_id}": encode(Library(book_id)),
            f"durations:{book_id}": encode(Library(book_id)),
            f"segment:{segment_id}": encode(Library(segment_id)),
        }
        writes: list[Write] = [(UPSERT, (_SPACE, key, value, 1)) for key, value in rows.items()]
        await self._rows.commit(_SPACE, writes, list(rows))
        return session


async def main(folder: Path) -> None:
    await serve(PlaybackByHand(folder))


if __name__ == "__main__":
    run(main)
