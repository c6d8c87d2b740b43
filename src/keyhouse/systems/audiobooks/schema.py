"""Keyspace schema and data model of the audiobook library, entity by entity, under exactly the
document's keys.

IDs are ULIDs. Names in keys are in normal form (`:norm`), and `:` in them is escaped. Positions and
sequences have ten digits: a position in a series is in thousandths, so that 1.5 sorts between 1 and
2, and an unset one (`null`) last.

Some rows are not in the document. `idx:series:name_author:…` keeps series unique by name and
author; `idx:series:name:…` holds the first of a name. `idx:play:book:…` leads from a book to its
listeners. `playw:…` is the watermark up to which the playback events of a listener and book are
counted in the statistics.

**The order of segments** is their `track_number`, the position in the book and not the tag of the
file; `bfi:` is derived from it, for active segments only. A merge first makes the old segments
inactive, which frees their positions, then puts the new one at position 1, all in one transaction;
so does moving segments. **The items of a playlist** (`pli:`) are separate records: their positions
belong to the playlist, not to the book.

A book in the bin (`deleted_at`) keeps its record; its only index rows are `idx:bin:…`, so no list
shows it, and what it refers to is not deleted.

**What belongs together** is declared (`belongs_to`, `references`); `idx:segment:book:…`,
`idx:playlist:book:…`, `idx:work:author:…` and `idx:work:series:…` lead to it from the other end.
"""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from keyhouse.keys import Regex, Template, normal
from keyhouse.schema import (
    Counter,
    First,
    FoldResult,
    Index,
    Log,
    Meta,
    Migration,
    Owner,
    Record,
    Reference,
    Schema,
    Space,
    Unique,
    at_field,
)
from keyhouse.store import Entry, Transaction, reindex
from keyhouse.systems.audiobooks.isbn import isbn10, isbn13
from keyhouse.systems.audiobooks.playback import Listening, count, current_place, percent, unheard
from keyhouse.systems.audiobooks.records import (
    Argon2Params,
    Asset,
    Author,
    Book,
    DurationMap,
    Operation,
    OperationLine,
    PlaybackEvent,
    Playlist,
    Progress,
    RolePermissions,
    Segment,
    Series,
    Session,
    User,
    UserSecrets,
    Work,
    is_binned,
    is_listed,
)

__all__ = [
    "ARGON2_PARAMS",
    "ASSET",
    "AUTHOR",
    "AUTHOR_BY_NAME",
    "BIN_OF_AUTHOR",
    "BIN_OF_SERIES",
    "BIN_OF_WORK",
    "BOOK",
    "BOOKS_BY_AUTHOR",
    "BOOKS_BY_GENRE",
    "BOOKS_BY_ISBN10",
    "BOOKS_BY_ISBN13",
    "BOOKS_BY_SERIES",
    "BOOKS_BY_TAG",
    "BOOKS_BY_TITLE",
    "BOOKS_BY_WORK",
    "BOOK_LISTEN_SECONDS",
    "BOOK_PLAYS",
    "DURATION_MAP",
    "ITEMS_OF_BOOK",
    "LISTENERS_OF_BOOK",
    "NEXT_SEQ",
    "OPERATION",
    "OPERATION_LOG",
    "PLAYBACK",
    "PLAYLIST",
    "PLAYLISTS_OF_USER",
    "PLAYLIST_ITEM",
    "PREFERENCE",
    "PROGRESS",
    "ROLE_PERMISSIONS",
    "SCHEMAS",
    "SEGMENT",
    "SEGMENTS_IN_ORDER",
    "SEGMENTS_OF_BOOK",
    "SERIES",
    "SERIES_BY_NAME",
    "SERIES_BY_NAME_AND_AUTHOR",
    "SERIES_OF_AUTHOR",
    "SESSION",
    "SESSIONS_OF_USER",
    "USER",
    "USER_BY_EMAIL",
    "USER_BY_NAME",
    "USER_LISTEN_SECONDS",
    "USER_SECRETS",
    "VERSION",
    "WATERMARK",
    "WORK",
    "WORKS_OF_AUTHOR",
    "WORKS_OF_SERIES",
    "WORK_BY_TITLE",
    "WORK_LISTEN_SECONDS",
    "WORK_PLAYS",
    "introduce_works",
    "is_binned",
    "is_listed",
    "join_work",
    "make_series_unique",
]

VERSION = ("version", 1)

# User

USER_BY_NAME = Unique("idx:user:username:{username:norm}", value="id")
USER_BY_EMAIL = Unique("idx:user:email:{email:norm}", value="id")
USER = Record(
    User,
    "u:{id:ulid}",
    USER_BY_NAME,
    USER_BY_EMAIL,
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
    private=("password_hash",),
)
USER_SECRETS = Record(
    UserSecrets,
    "ua:{user_id:ulid}",
    name="user_secrets",
    version=VERSION,
    unknown="keep",
    private=("hashes",),
    belongs_to=Owner(USER),
)

# Session

SESSIONS_OF_USER = Index("idx:sess:user:{user_id:ulid}:{id:ulid}")
SESSION = Record(
    Session,
    "sess:{id:ulid}",
    SESSIONS_OF_USER,
    version=VERSION,
    unknown="keep",
    created="created_at",
    timestamps=("expires_at",),
    private=("token_hash",),
    expiry=at_field("expires_at"),
    belongs_to=Owner(USER, by=SESSIONS_OF_USER),
)

# User preferences, and permissions of roles

PREFERENCE: Record[Any] = Record(
    Any,
    "pref:{user_id:ulid}:{key}",
    name="preference",
    doc="Any JSON, by the user's key.",
    belongs_to=Owner(USER),
)
ROLE_PERMISSIONS = Record(
    RolePermissions, "authz:{role}", name="role_permissions", version=VERSION, unknown="keep"
)

# Author

AUTHOR_BY_NAME = Unique("idx:author:name:{normalized_name:norm}", value="id")
AUTHOR = Record(
    Author,
    "a:{id:ulid}",
    AUTHOR_BY_NAME,
    computed={"normalized_name": lambda author: normal(author.name)},
    version=VERSION,
    unknown="keep",
    created="created_at",
)

# Series

SERIES_BY_NAME_AND_AUTHOR = Unique(
    "idx:series:name_author:{normalized_name:norm}:{author_id:ulid?}", value="id"
)
SERIES_BY_NAME = First(
    "idx:series:name:{normalized_name:norm}", value="id", among=SERIES_BY_NAME_AND_AUTHOR
)
SERIES_OF_AUTHOR = Index("idx:series:author:{author_id:ulid}:{id:ulid}")
SERIES = Record(
    Series,
    "s:{id:ulid}",
    SERIES_BY_NAME,
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
    references=Reference(AUTHOR, by=SERIES_OF_AUTHOR),
    computed={"normalized_name": lambda series: normal(series.name)},
    version=VERSION,
    unknown="keep",
    created="created_at",
)

# Work (title-level logical grouping)

WORK_BY_TITLE = Unique(
    "idx:work:title:{normalized_title:norm}:author:{author_id:ulid?}", value="id"
)
WORKS_OF_AUTHOR = Index("idx:work:author:{author_id:ulid}:{id:ulid}")
WORKS_OF_SERIES = Index("idx:work:series:{series_id:ulid}:{id:ulid}")
WORK = Record(
    Work,
    "w:{id:ulid}",
    WORK_BY_TITLE,
    WORKS_OF_AUTHOR,
    WORKS_OF_SERIES,
    references=(Reference(AUTHOR, by=WORKS_OF_AUTHOR), Reference(SERIES, by=WORKS_OF_SERIES)),
    computed={"normalized_title": lambda work: normal(work.title)},
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)

# Book (logical)

BOOKS_BY_AUTHOR = Index("idx:book:author:{author_id:ulid}:{id:ulid}", when=is_listed)
BOOKS_BY_SERIES = Index(
    "idx:book:series:{series_id:ulid}:{series_position:010.3f?}:{id:ulid}", when=is_listed
)
BOOKS_BY_TITLE = Index("idx:book:title:{normalized_title:norm}:{id:ulid}", when=is_listed)
BOOKS_BY_TAG = Index("idx:book:tag:{tag:norm}:{id:ulid}", each={"tag": "tags"}, when=is_listed)
BOOKS_BY_GENRE = Index(
    "idx:book:genre:{genre:norm}:{id:ulid}", each={"genre": "genres"}, when=is_listed
)
BOOKS_BY_ISBN10 = Index(
    Template("idx:book:isbn10:{isbn10}:{id:ulid}", isbn10=Regex("[0-9]{9}[0-9X]")), when=is_listed
)
BOOKS_BY_ISBN13 = Index(
    Template("idx:book:isbn13:{isbn13}:{id:ulid}", isbn13=Regex("[0-9]{13}")), when=is_listed
)
BOOKS_BY_WORK = Index("idx:book:work:{work_id:ulid}:{id:ulid}", when=is_listed)
BIN_OF_AUTHOR = Index("idx:bin:author:{author_id:ulid}:{id:ulid}", when=is_binned)
BIN_OF_SERIES = Index("idx:bin:series:{series_id:ulid}:{id:ulid}", when=is_binned)
BIN_OF_WORK = Index("idx:bin:work:{work_id:ulid}:{id:ulid}", when=is_binned)
BOOK = Record(
    Book,
    "b:{id:ulid}",
    BOOKS_BY_AUTHOR,
    BOOKS_BY_SERIES,
    BOOKS_BY_TITLE,
    BOOKS_BY_TAG,
    BOOKS_BY_GENRE,
    BOOKS_BY_ISBN10,
    BOOKS_BY_ISBN13,
    BOOKS_BY_WORK,
    BIN_OF_AUTHOR,
    BIN_OF_SERIES,
    BIN_OF_WORK,
    references=(
        Reference(AUTHOR, by=(BOOKS_BY_AUTHOR, BIN_OF_AUTHOR)),
        Reference(SERIES, by=(BOOKS_BY_SERIES, BIN_OF_SERIES)),
        Reference(WORK, by=(BOOKS_BY_WORK, BIN_OF_WORK)),
    ),
    computed={
        "normalized_title": lambda book: normal(book.title),
        "isbn10": lambda book: None if book.isbn10 is None else isbn10(book.isbn10),
        "isbn13": lambda book: None if book.isbn13 is None else isbn13(book.isbn13),
    },
    timestamps=("deleted_at",),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)

# Book file segment (physical)

SEGMENTS_IN_ORDER = Unique(
    "bfi:{book_id:ulid}:{track_number:010d}", value="id", when=lambda segment: bool(segment.active)
)
SEGMENTS_OF_BOOK = Index("idx:segment:book:{book_id:ulid}:{id:ulid}")
SEGMENT = Record(
    Segment,
    "bf:{id:ulid}",
    SEGMENTS_IN_ORDER,
    SEGMENTS_OF_BOOK,
    belongs_to=Owner(BOOK, by=SEGMENTS_OF_BOOK),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)

# Playlist

PLAYLISTS_OF_USER = Index("idx:playlist:user:{user_id:ulid}:{id:ulid}")
PLAYLIST = Record(
    Playlist,
    "pl:{id:ulid}",
    PLAYLISTS_OF_USER,
    belongs_to=Owner(USER, by=PLAYLISTS_OF_USER),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
)
ITEMS_OF_BOOK = Index(
    "idx:playlist:book:{book_id:ulid}:{playlist_id:ulid}:{position:010d}",
    fields={"book_id": str},
)
PLAYLIST_ITEM = Record(
    str,
    "pli:{playlist_id:ulid}:{position:010d}",
    ITEMS_OF_BOOK,
    belongs_to=(Owner(PLAYLIST), Owner(BOOK, by=ITEMS_OF_BOOK)),
    name="playlist_item",
    doc="The book at that position.",
)

# Playback progress (latest snapshot), and durations for offset conversion

LISTENERS_OF_BOOK = Index("idx:play:book:{book_id:ulid}:{user_id:ulid}")
PROGRESS = Record(
    Progress,
    "playp:{user_id:ulid}:{book_id:ulid}",
    LISTENERS_OF_BOOK,
    belongs_to=(Owner(USER), Owner(BOOK, by=LISTENERS_OF_BOOK)),
    version=VERSION,
    unknown="keep",
    updated="updated_at",
)
DURATION_MAP = Record(
    DurationMap,
    "b:duration_map:{book_id:ulid}",
    name="duration_map",
    version=VERSION,
    unknown="keep",
    belongs_to=Owner(BOOK),
)

# Stats aggregates (derived)

BOOK_PLAYS = Counter("stats:book:plays:{book_id:ulid}", name="book_plays", belongs_to=Owner(BOOK))
USER_LISTEN_SECONDS = Counter(
    "stats:user:listen_seconds:{user_id:ulid}", name="user_listen_seconds", belongs_to=Owner(USER)
)
BOOK_LISTEN_SECONDS = Counter(
    "stats:book:listen_seconds:{book_id:ulid}", name="book_listen_seconds", belongs_to=Owner(BOOK)
)
WORK_PLAYS = Counter("stats:work:plays:{work_id:ulid}", name="work_plays", belongs_to=Owner(WORK))
WORK_LISTEN_SECONDS = Counter(
    "stats:work:listen_seconds:{work_id:ulid}", name="work_listen_seconds", belongs_to=Owner(WORK)
)

# Playback event (immutable): each updates the snapshot and the statistics in its own commit


def _needs(event: PlaybackEvent) -> dict[str, tuple[Record[Any], dict[str, Any]]]:
    return {
        "book": (BOOK, {"id": event.book_id}),
        "durations": (DURATION_MAP, {"book_id": event.book_id}),
        "progress": (PROGRESS, {"user_id": event.user_id, "book_id": event.book_id}),
    }


def _fold(state: Listening | None, event: PlaybackEvent, found: Mapping[str, Any]) -> FoldResult:
    """Count an event, and move the snapshot. One of an unknown segment counts nothing: the service
    rejects it before it is appended. One of an absent book has no owner, so it is rejected."""
    durations, book, before = found["durations"], found["book"], found["progress"]
    place = current_place(event.segment_id, event.position_seconds, durations)
    if book is None or place is None:
        result = FoldResult(state if state is not None else unheard(event))
        if before is None:  # the event belongs to it
            result.puts = [(PROGRESS, Progress(user_id=event.user_id, book_id=event.book_id), {})]
        return result
    event = replace(event, segment_id=place.segment_id, position_seconds=place.position_seconds)
    counted = count(state, event, durations)
    progress = Progress(
        user_id=event.user_id,
        book_id=event.book_id,
        segment_id=place.segment_id,
        position_seconds=place.position_seconds,
        percent_complete=percent(
            event, durations, 0.0 if before is None else before.percent_complete
        ),
    )
    if before is not None:
        progress.manual_status = before.manual_status
    adds: list[tuple[Counter, int, dict[str, Any]]] = [
        (BOOK_PLAYS, counted.plays, {"book_id": event.book_id}),
        (BOOK_LISTEN_SECONDS, counted.listen_seconds, {"book_id": event.book_id}),
        (USER_LISTEN_SECONDS, counted.listen_seconds, {"user_id": event.user_id}),
    ]
    if book.work_id is not None:
        adds += [
            (WORK_PLAYS, counted.plays, {"work_id": book.work_id}),
            (WORK_LISTEN_SECONDS, counted.listen_seconds, {"work_id": book.work_id}),
        ]
    return FoldResult(
        counted.state, puts=[(PROGRESS, progress, {})], adds=[add for add in adds if add[1]]
    )


WATERMARK = Record(
    Listening,
    "playw:{user_id:ulid}:{book_id:ulid}",
    name="watermark",
    belongs_to=Owner(PROGRESS),
)
PLAYBACK = Log(
    PlaybackEvent,
    "playe:{user_id:ulid}:{book_id:ulid}:{at:ulid}",
    name="playback_event",
    timestamps=("created_at",),
    version=VERSION,
    unknown="keep",
    state=WATERMARK,
    fold=_fold,
    needs=_needs,
    belongs_to=Owner(PROGRESS),
)

# Operations and logs

OPERATION = Record(
    Operation,
    "op:{id:ulid}",
    version=VERSION,
    unknown="keep",
    timestamps=("started_at", "completed_at"),
)
NEXT_SEQ = Counter("op:{operation_id:ulid}:next_seq", name="next_seq", belongs_to=Owner(OPERATION))
OPERATION_LOG = Log(
    OperationLine,
    "opl:{operation_id:ulid}:{seq:010d}",
    name="operation_line",
    timestamps=("timestamp",),
    version=VERSION,
    unknown="keep",
    sequence=NEXT_SEQ,
    belongs_to=Owner(OPERATION),
)

# Security, and future extensions

ARGON2_PARAMS = Record(
    Argon2Params, "meta:auth:argon2_params", name="argon2_params", version=VERSION, unknown="keep"
)
ASSET = Record(Asset, "asset:{id:ulid}", version=VERSION, unknown="keep", created="created_at")

# Migrations: `mig:<versionPadded>` and `meta:version` are the default of Meta


async def join_work(tx: Transaction, book: Book, work_id: str | None) -> None:
    """Move a book to a work, or out of its work, and its statistics from the old work to the new
    one, in one commit."""
    for of_book, of_work in ((BOOK_PLAYS, WORK_PLAYS), (BOOK_LISTEN_SECONDS, WORK_LISTEN_SECONDS)):
        counted = await tx.get(of_book, book_id=book.id) or 0
        if book.work_id is not None:
            await tx.add(of_work, -counted, work_id=book.work_id)
        if work_id is not None:
            await tx.add(of_work, counted, work_id=work_id)
    await tx.put(BOOK, replace(book, work_id=work_id))


async def introduce_works(tx: Transaction, entry: Entry[Book]) -> None:
    """Assign a book without a work to the one of its title and author, creating it if there is
    none.

    A new work gets the ULID of its book, so that a repeated run creates no second one.
    """
    book = entry.record
    if book.work_id is not None:
        return
    author_id, series_id = book.author_id, book.series_id
    if author_id is not None and await tx.get(AUTHOR, id=author_id) is None:
        author_id = None  # another program has left it behind
    found = await tx.lookup(WORK, WORK_BY_TITLE, normalized_title=book.title, author_id=author_id)
    if found is not None:
        await join_work(tx, book, found.record.id)
        return
    if series_id is not None and await tx.get(SERIES, id=series_id) is None:
        series_id = None
    work = Work(id=book.id, title=book.title, author_id=author_id, series_id=series_id)
    await tx.put(WORK, work, expect=None)
    await join_work(tx, book, work.id)


async def make_series_unique(tx: Transaction, entry: Entry[Series]) -> None:
    """Replace the index row of a series by name and author, which had its id in the key, by a unique
    one.

    Of several series of one name and author, the first holds the row; `verify` reports the others.
    """
    index = tx.binding.derived(SERIES_BY_NAME_AND_AUTHOR)
    for key in index.rows(entry.record, entry.values):
        tx.write(f"{key}:{entry.record.id}", None)
        written = await tx.row(key)
        if written is None:
            tx.write(key, (index.contribution(entry.record, entry.values), None))


SCHEMAS: tuple[Schema, ...] = (
    Schema(
        "audiobooks",
        *(USER, USER_SECRETS, SESSION, PREFERENCE, ROLE_PERMISSIONS),
        *(AUTHOR, SERIES, WORK, BOOK, SEGMENT, PLAYLIST, PLAYLIST_ITEM),
        *(PLAYBACK, PROGRESS, WATERMARK, DURATION_MAP),
        *(BOOK_PLAYS, USER_LISTEN_SECONDS, BOOK_LISTEN_SECONDS, WORK_PLAYS, WORK_LISTEN_SECONDS),
        *(OPERATION, OPERATION_LOG, NEXT_SEQ, ARGON2_PARAMS, ASSET),
        space=Space("a library"),
        doc="Authors, series, works, books and their files, and listeners' progress.",
        overlaps=((BOOK, DURATION_MAP), (OPERATION, NEXT_SEQ), (NEXT_SEQ, OPERATION)),
        meta=Meta(),
        migrations=(
            Migration(1, "Work introduction (v1.1.0)", BOOK, introduce_works),
            Migration(2, "Series unique by name and author", SERIES, make_series_unique),
            reindex(3, "Segments by book", SEGMENT),
            reindex(4, "Places of books in playlists", PLAYLIST_ITEM),
            reindex(5, "Binned books by author, series and work", BOOK),
            reindex(6, "Works by author and series", WORK),
        ),
    ),
)
