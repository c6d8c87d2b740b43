"""Song requests of a stream: `keyhouse serve songs:SONGS --pages overlay`.

Viewers ask for songs with one operation, `request_song`; the overlay shows the song that plays, the
queue, and today's most active viewers.
"""

from datetime import UTC, datetime

from msgspec import Struct

from keyhouse import (
    Index,
    Record,
    Schema,
    Space,
    Store,
    Transaction,
    Unique,
    fixed,
    operation,
    per_write,
)
from keyhouse.errors import ConflictError, NotFoundError

COOLDOWN_SECONDS = 60
POINTS_OF_A_REQUEST = 10
DAY_SECONDS = 24 * 3_600


class Song(Struct, kw_only=True):
    """A song that viewers may ask for."""

    id: str
    title: str


class Request(Struct, kw_only=True):
    """A song in the queue. Its id is a ULID, so that the key order is the order of the requests."""

    id: str
    song: str
    title: str
    user: str


class Points(Struct, kw_only=True):
    """The points of a viewer on one day."""

    day: str
    user: str
    points: int = 0


ONE_TITLE = Unique("title:{title:norm}", value="id")
SONG = Record(Song, "song:{id}", ONE_TITLE)
REQUEST = Record(Request, "request:{id:ulid}")
BEST = Index("best:{day}:{points:06d}:{user}")
POINTS = Record(Points, "points:{day}:{user}", BEST, expiry=fixed(2 * DAY_SECONDS))
COOLING = Record(str, "cooling:{user}", name="cooling", expiry=per_write())
NOW = Record(str, "now", name="now", expiry=per_write())


class SongRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    user: str
    title: str


class Queued(Struct, kw_only=True):
    id: str
    title: str
    points: int


class CooldownError(ConflictError):
    """The viewer has asked for a song a moment ago. Callers see the type `cooldown`."""


@operation(access="write")
async def request_song(store: Store, request: SongRequest) -> Queued:
    """Put a song into the queue, and give its viewer points: once a minute."""
    id = store.ids.new()

    async def work(tx: Transaction) -> Queued:
        cooling = await tx.entry(COOLING, user=request.user)
        if cooling is not None:
            seconds = -((tx.now - (cooling.expires or 0)) // 1_000)
            raise CooldownError("Wait before the next request.", seconds=seconds)
        song = await tx.lookup(SONG, ONE_TITLE, title=request.title)
        if song is None:
            raise NotFoundError("There is no such song.", title=request.title)
        day = datetime.fromtimestamp(tx.now / 1_000, UTC).date().isoformat()
        points = await tx.get(POINTS, day=day, user=request.user)
        points = points or Points(day=day, user=request.user)
        points.points += POINTS_OF_A_REQUEST
        title = song.record.title
        await tx.put(COOLING, "", user=request.user, ttl=COOLDOWN_SECONDS)
        await tx.put(REQUEST, Request(id=id, song=song.record.id, title=title, user=request.user))
        await tx.put(POINTS, points)
        return Queued(id=id, title=title, points=points.points)

    return await store.transact(work)


SONGS = Schema(
    "songs",
    *(SONG, REQUEST, POINTS, COOLING, NOW),
    operations=[request_song],
    space=Space("a channel"),
)
