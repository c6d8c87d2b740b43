"""Keyspace schema and data model of the audiobook library, entity by entity, under exactly the
document's keys.

IDs are ULIDs. Names in keys are in normal form (`:norm`), and `:` in them is escaped. Positions and
sequences have ten digits: a position in a series is in thousandths, so that 1.5 sorts between 1 and
2, and an unset one (`null`) last.

Some rows are not in the document. `idx:series:name_author:…` keeps series unique by name and
author; `idx:series:name:…` holds the first of a name. `idx:play:book:…` leads from a book to its
listeners. `idx:playlist:shared:…` leads to the playlists that all users share. `playw:…` is the
watermark up to which the playback events of a listener and book are counted in the statistics.
`ul:…` is written with each playlist, bookmark and preference that a user adds, so that of two that
are added at once, the second one is counted after the first.

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

from keyhouse_audiobooks.records import VERSION, is_binned, is_listed
from keyhouse_audiobooks.schema.books import (
    ASSET,
    ASSETS_BY_HASH,
    ASSETS_OF_BOOK,
    AUTHOR,
    AUTHOR_BY_NAME,
    BIN,
    BIN_OF_AUTHOR,
    BIN_OF_SERIES,
    BIN_OF_WORK,
    BOOK,
    BOOK_BY_SOURCE,
    BOOKS_BY_AUTHOR,
    BOOKS_BY_GENRE,
    BOOKS_BY_ISBN10,
    BOOKS_BY_ISBN13,
    BOOKS_BY_SERIES,
    BOOKS_BY_TAG,
    BOOKS_BY_TITLE,
    BOOKS_BY_WORK,
    SEGMENT,
    SEGMENTS_BY_HASH,
    SEGMENTS_BY_PATH,
    SEGMENTS_IN_ORDER,
    SEGMENTS_OF_BOOK,
    SERIES,
    SERIES_BY_NAME,
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
    WORK,
    WORK_BY_TITLE,
    WORKS_OF_AUTHOR,
    WORKS_OF_SERIES,
)
from keyhouse_audiobooks.schema.keyspace import META, SCHEMAS, TENANT_PREFIX, library_schema
from keyhouse_audiobooks.schema.listening import (
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    BOOKMARK,
    BOOKMARKS_OF_BOOK,
    DURATION_MAP,
    ITEMS_OF_BOOK,
    LISTENERS_OF_BOOK,
    PLAYBACK,
    PLAYLIST,
    PLAYLIST_ITEM,
    PLAYLISTS_OF_USER,
    PROGRESS,
    SHARED_PLAYLISTS,
    USER_LISTEN_SECONDS,
    USER_PLAYS,
    WATERMARK,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
)
from keyhouse_audiobooks.schema.migrations import (
    backfill_work,
    introduce_works,
    join_work,
    make_series_unique,
)
from keyhouse_audiobooks.schema.operations import NEXT_SEQ, OPERATION, OPERATION_LOG, OPERATION_RUN
from keyhouse_audiobooks.schema.users import (
    API_KEY_OWNER,
    ARGON2_PARAMS,
    PREFERENCE,
    ROLE_PERMISSIONS,
    SESSION,
    SESSIONS_OF_USER,
    SETUP,
    USER,
    USER_BY_EMAIL,
    USER_BY_NAME,
    USER_LIMITS,
    USER_SECRETS,
)

__all__ = [
    "API_KEY_OWNER",
    "ARGON2_PARAMS",
    "ASSET",
    "ASSETS_BY_HASH",
    "ASSETS_OF_BOOK",
    "AUTHOR",
    "AUTHOR_BY_NAME",
    "BIN",
    "BIN_OF_AUTHOR",
    "BIN_OF_SERIES",
    "BIN_OF_WORK",
    "BOOK",
    "BOOKMARK",
    "BOOKMARKS_OF_BOOK",
    "BOOKS_BY_AUTHOR",
    "BOOKS_BY_GENRE",
    "BOOKS_BY_ISBN10",
    "BOOKS_BY_ISBN13",
    "BOOKS_BY_SERIES",
    "BOOKS_BY_TAG",
    "BOOKS_BY_TITLE",
    "BOOKS_BY_WORK",
    "BOOK_BY_SOURCE",
    "BOOK_LISTEN_SECONDS",
    "BOOK_PLAYS",
    "DURATION_MAP",
    "ITEMS_OF_BOOK",
    "LISTENERS_OF_BOOK",
    "META",
    "NEXT_SEQ",
    "OPERATION",
    "OPERATION_LOG",
    "OPERATION_RUN",
    "PLAYBACK",
    "PLAYLIST",
    "PLAYLISTS_OF_USER",
    "PLAYLIST_ITEM",
    "PREFERENCE",
    "PROGRESS",
    "ROLE_PERMISSIONS",
    "SCHEMAS",
    "SEGMENT",
    "SEGMENTS_BY_HASH",
    "SEGMENTS_BY_PATH",
    "SEGMENTS_IN_ORDER",
    "SEGMENTS_OF_BOOK",
    "SERIES",
    "SERIES_BY_NAME",
    "SERIES_BY_NAME_AND_AUTHOR",
    "SERIES_OF_AUTHOR",
    "SESSION",
    "SESSIONS_OF_USER",
    "SETUP",
    "SHARED_PLAYLISTS",
    "TENANT_PREFIX",
    "USER",
    "USER_BY_EMAIL",
    "USER_BY_NAME",
    "USER_LIMITS",
    "USER_LISTEN_SECONDS",
    "USER_PLAYS",
    "USER_SECRETS",
    "VERSION",
    "WATERMARK",
    "WORK",
    "WORKS_OF_AUTHOR",
    "WORKS_OF_SERIES",
    "WORK_BY_TITLE",
    "WORK_LISTEN_SECONDS",
    "WORK_PLAYS",
    "backfill_work",
    "introduce_works",
    "is_binned",
    "is_listed",
    "join_work",
    "library_schema",
    "make_series_unique",
]
