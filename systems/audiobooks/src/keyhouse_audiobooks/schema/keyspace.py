"""The schema of the library: every record, and the migrations."""

from typing import Final

from keyhouse.schema import Meta, Migration, Schema, Space
from keyhouse.store import reindex
from keyhouse_audiobooks.schema.books import ASSET, AUTHOR, BOOK, SEGMENT, SERIES, WORK
from keyhouse_audiobooks.schema.listening import (
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    BOOKMARK,
    DURATION_MAP,
    PLAYBACK,
    PLAYLIST,
    PLAYLIST_ITEM,
    PROGRESS,
    USER_LISTEN_SECONDS,
    USER_PLAYS,
    WATERMARK,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
)
from keyhouse_audiobooks.schema.migrations import introduce_works, make_series_unique
from keyhouse_audiobooks.schema.operations import NEXT_SEQ, OPERATION, OPERATION_LOG, OPERATION_RUN
from keyhouse_audiobooks.schema.users import (
    ARGON2_PARAMS,
    PREFERENCE,
    ROLE_PERMISSIONS,
    SEALED_USER,
    SESSION,
    SETUP,
    USER,
    USER_LIMITS,
    USER_SECRETS,
)

__all__ = ["META", "SCHEMAS", "TENANT_PREFIX", "library_schema"]

TENANT_PREFIX: Final = "tenant:{tenant}:"
"""In front of all keys, where a service has several libraries."""

META: Final = Meta()

SCHEMAS: tuple[Schema, ...] = (
    Schema(
        "audiobooks",
        *(USER, USER_SECRETS, USER_LIMITS, SESSION, PREFERENCE, ROLE_PERMISSIONS),
        *(AUTHOR, SERIES, WORK, BOOK, SEGMENT, PLAYLIST, PLAYLIST_ITEM),
        *(PLAYBACK, PROGRESS, WATERMARK, DURATION_MAP),
        *(
            USER_PLAYS,
            BOOK_PLAYS,
            USER_LISTEN_SECONDS,
            BOOK_LISTEN_SECONDS,
            WORK_PLAYS,
            WORK_LISTEN_SECONDS,
        ),
        *(BOOKMARK, OPERATION, OPERATION_LOG, NEXT_SEQ, OPERATION_RUN),
        *(ARGON2_PARAMS, SETUP, ASSET),
        space=Space("a library"),
        doc="Authors, series, works, books and their files, and listeners' progress.",
        overlaps=((BOOK, DURATION_MAP), (OPERATION, NEXT_SEQ), (NEXT_SEQ, OPERATION)),
        meta=META,
        migrations=(
            Migration(1, "Work introduction (v1.1.0)", BOOK, introduce_works),
            Migration(2, "Series unique by name and author", SERIES, make_series_unique),
            reindex(3, "Segments by book", SEGMENT),
            reindex(4, "Places of books in playlists", PLAYLIST_ITEM),
            reindex(5, "Binned books by author, series and work", BOOK),
            reindex(6, "Works by author and series", WORK),
            reindex(7, "Segments by hash and path", SEGMENT),
            reindex(8, "The bin in the order of deletion", BOOK),
            reindex(9, "Assets by hash", ASSET),
            reindex(10, "Playlists that all users share", PLAYLIST),
        ),
    ),
)


def library_schema(*, tenants: bool, sealed: bool) -> Schema:
    """Return the schema of a service: with the tenant prefix, or with sealed members."""
    schema = SCHEMAS[0]
    if sealed:
        schema = schema.replacing(USER, SEALED_USER)
    return schema.under(TENANT_PREFIX) if tenants else schema
