"""Song requests: a schema with operations beside the generated ones."""

from msgspec import Struct

from keyhouse import Index, Record, Schema, Space, Store, Transaction, operation, per_write
from keyhouse.errors import ConflictError, NotFoundError


class Song(Struct, kw_only=True):
    id: str
    title: str


class Points(Struct, kw_only=True):
    user: str
    points: int = 0


class SongRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    user: str
    song: str


class Queued(Struct, kw_only=True):
    song: str
    points: int


class Best(Struct, kw_only=True):
    users: list[str]


class CooldownError(ConflictError):
    pass


BEST = Index("best:{points:06d}:{user}")
SONG = Record(Song, "song:{id}")
POINTS = Record(Points, "points:{user}", BEST)
COOLING = Record(str, "cooling:{user}", name="cooling", expiry=per_write())


@operation(access="write")
async def request_song(store: Store, request: SongRequest) -> Queued:
    """Ask for a song: once in 30 seconds, for a point."""

    async def work(tx: Transaction) -> Queued:
        if await tx.get(COOLING, user=request.user) is not None:
            raise CooldownError("Wait before the next request.", user=request.user)
        if await tx.get(SONG, id=request.song) is None:
            raise NotFoundError("There is no such song.", song=request.song)
        points = await tx.get(POINTS, user=request.user) or Points(user=request.user)
        points.points += 1
        await tx.put(POINTS, points)
        await tx.put(COOLING, request.song, user=request.user, ttl=30)
        return Queued(song=request.song, points=points.points)

    return await store.transact(work)


@operation(access="write")
async def skip(store: Store) -> None:
    await store.put(SONG, Song(id="skipped", title="Skipped"))


@operation(access="read")
async def best(store: Store) -> Best:
    """The users with the most points."""
    entries = store.scan(POINTS, by=BEST, reverse=True, limit=5)
    return Best(users=[entry.record.user async for entry in entries])


@operation(access="read")
async def sneak(store: Store) -> None:
    """Writes, although it says that it does not."""
    await store.put(SONG, Song(id="sneaked", title="Sneaked"))


@operation(access="read")
async def mistaken(store: Store) -> Best:
    return None  # type: ignore[return-value]  # which is the mistake


@operation(access="write")
async def failing(store: Store) -> None:
    raise ValueError("a bug")


SONGS = Schema(
    "songs",
    SONG,
    POINTS,
    COOLING,
    operations=[request_song, skip, best, sneak, mistaken, failing],
    space=Space("a channel"),
)
