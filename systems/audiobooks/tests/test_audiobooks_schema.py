"""The audiobook library's keyspace: every key and value of its document."""

from typing import Any

import pytest

from keyhouse.errors import KeyFieldError
from keyhouse.keys import Template
from keyhouse.schema import Meta, Record
from keyhouse_audiobooks.records import Book, User
from keyhouse_audiobooks.schema import (
    API_KEY_OWNER,
    ARGON2_PARAMS,
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
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    BOOKMARK,
    BOOKMARKS_OF_BOOK,
    BOOKS_BY_AUTHOR,
    BOOKS_BY_GENRE,
    BOOKS_BY_ISBN10,
    BOOKS_BY_ISBN13,
    BOOKS_BY_SERIES,
    BOOKS_BY_TAG,
    BOOKS_BY_TITLE,
    BOOKS_BY_WORK,
    DURATION_MAP,
    ITEMS_OF_BOOK,
    LISTENERS_OF_BOOK,
    NEXT_SEQ,
    OPERATION,
    OPERATION_LOG,
    OPERATION_RUN,
    PLAYBACK,
    PLAYLIST,
    PLAYLIST_ITEM,
    PLAYLISTS_OF_USER,
    PREFERENCE,
    PROGRESS,
    ROLE_PERMISSIONS,
    SCHEMAS,
    SEGMENT,
    SEGMENTS_BY_HASH,
    SEGMENTS_BY_PATH,
    SEGMENTS_IN_ORDER,
    SEGMENTS_OF_BOOK,
    SERIES,
    SERIES_BY_NAME,
    SERIES_BY_NAME_AND_AUTHOR,
    SERIES_OF_AUTHOR,
    SESSION,
    SESSIONS_OF_USER,
    SETUP,
    SHARED_PLAYLISTS,
    USER,
    USER_BY_EMAIL,
    USER_BY_NAME,
    USER_LIMITS,
    USER_LISTEN_SECONDS,
    USER_PLAYS,
    USER_SECRETS,
    WATERMARK,
    WORK,
    WORK_BY_TITLE,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
    WORKS_OF_AUTHOR,
    WORKS_OF_SERIES,
)
from tests.support.store_driver import key_round_trips, ulid, value_round_trips

[SCHEMA] = SCHEMAS
META = SCHEMA.meta or Meta()

AT = "2026-01-19T10:20:30Z"
USER_ID, AUTHOR_ID, SERIES_ID, WORK_ID, BOOK_ID, SEGMENT_ID, OTHER_ID = (
    ulid(number) for number in range(1, 8)
)


def in_series(position: float | None, written: str) -> tuple[Template, str, dict[str, object]]:
    fields: dict[str, object] = {"series_id": SERIES_ID, "series_position": position, "id": BOOK_ID}
    return BOOKS_BY_SERIES.template, f"idx:book:series:{SERIES_ID}:{written}:{BOOK_ID}", fields


KEYS: list[tuple[Template, str, dict[str, object]]] = [
    (META.version.template, "meta:version", {}),
    (META.done.template, "mig:000001", {"id": 1}),
    (ARGON2_PARAMS.template, "meta:auth:argon2_params", {}),
    (USER.template, f"u:{USER_ID}", {"id": USER_ID}),
    (USER_BY_NAME.template, "idx:user:username:taco", {"username": "taco"}),
    (USER_BY_EMAIL.template, "idx:user:email:taco@example.org", {"email": "taco@example.org"}),
    (USER_SECRETS.template, f"ua:{USER_ID}", {"user_id": USER_ID}),
    (USER_LIMITS.template, f"ul:{USER_ID}", {"user_id": USER_ID}),
    (
        API_KEY_OWNER.template,
        f"idx:apikey:{OTHER_ID}:{USER_ID}",
        {"key_id": OTHER_ID, "user_id": USER_ID},
    ),
    (SETUP.template, "meta:auth:setup", {}),
    (
        BIN.template,
        f"idx:bin:at:2026-01-19T10%3A20%3A30Z:{BOOK_ID}",
        {"deleted_at": AT, "id": BOOK_ID},
    ),
    (BOOK_BY_SOURCE.template, "idx:book:source:ab12", {"source": "ab12"}),
    (
        SEGMENTS_BY_HASH.template,
        f"idx:segment:hash:ab12:{SEGMENT_ID}",
        {"hash_sha256": "ab12", "id": SEGMENT_ID},
    ),
    (
        SEGMENTS_BY_PATH.template,
        f"idx:segment:path:ab12:{SEGMENT_ID}",
        {"path": "ab12", "id": SEGMENT_ID},
    ),
    (
        ASSETS_OF_BOOK.template,
        f"idx:asset:book:{BOOK_ID}:{OTHER_ID}",
        {"book_id": BOOK_ID, "id": OTHER_ID},
    ),
    (
        ASSETS_BY_HASH.template,
        f"idx:asset:hash:{'0' * 64}:{OTHER_ID}",
        {"hash_sha256": "0" * 64, "id": OTHER_ID},
    ),
    (
        BOOKMARK.template,
        f"bm:{USER_ID}:{BOOK_ID}:{OTHER_ID}",
        {"user_id": USER_ID, "book_id": BOOK_ID, "id": OTHER_ID},
    ),
    (
        BOOKMARKS_OF_BOOK.template,
        f"idx:bookmark:book:{BOOK_ID}:{USER_ID}:{OTHER_ID}",
        {"user_id": USER_ID, "book_id": BOOK_ID, "id": OTHER_ID},
    ),
    (OPERATION_RUN.template, f"opr:{OTHER_ID}", {"id": OTHER_ID}),
    (USER_PLAYS.template, f"stats:user:plays:{USER_ID}", {"user_id": USER_ID}),
    (SESSION.template, f"sess:{OTHER_ID}", {"id": OTHER_ID}),
    (
        SESSIONS_OF_USER.template,
        f"idx:sess:user:{USER_ID}:{OTHER_ID}",
        {"user_id": USER_ID, "id": OTHER_ID},
    ),
    (
        PREFERENCE.template,
        f"pref:{USER_ID}:player:speed",
        {"user_id": USER_ID, "key": "player:speed"},
    ),
    (ROLE_PERMISSIONS.template, "authz:admin", {"role": "admin"}),
    (AUTHOR.template, f"a:{AUTHOR_ID}", {"id": AUTHOR_ID}),
    (
        AUTHOR_BY_NAME.template,
        "idx:author:name:ursula k. le guin",
        {"normalized_name": "ursula k. le guin"},
    ),
    (SERIES.template, f"s:{SERIES_ID}", {"id": SERIES_ID}),
    (SERIES_BY_NAME.template, "idx:series:name:earthsea", {"normalized_name": "earthsea"}),
    (
        SERIES_BY_NAME_AND_AUTHOR.template,
        f"idx:series:name_author:earthsea:{AUTHOR_ID}",
        {"normalized_name": "earthsea", "author_id": AUTHOR_ID},
    ),
    (
        SERIES_BY_NAME_AND_AUTHOR.template,
        "idx:series:name_author:earthsea:null",
        {"normalized_name": "earthsea", "author_id": None},
    ),
    (
        SERIES_OF_AUTHOR.template,
        f"idx:series:author:{AUTHOR_ID}:{SERIES_ID}",
        {"author_id": AUTHOR_ID, "id": SERIES_ID},
    ),
    (WORK.template, f"w:{WORK_ID}", {"id": WORK_ID}),
    (
        WORK_BY_TITLE.template,
        f"idx:work:title:2001%3A a space odyssey:author:{AUTHOR_ID}",
        {"normalized_title": "2001: a space odyssey", "author_id": AUTHOR_ID},
    ),
    (
        WORK_BY_TITLE.template,
        "idx:work:title:beowulf:author:null",
        {"normalized_title": "beowulf", "author_id": None},
    ),
    (BOOK.template, f"b:{BOOK_ID}", {"id": BOOK_ID}),
    (
        BOOKS_BY_AUTHOR.template,
        f"idx:book:author:{AUTHOR_ID}:{BOOK_ID}",
        {"author_id": AUTHOR_ID, "id": BOOK_ID},
    ),
    in_series(1, "0000001000"),
    in_series(1.5, "0000001500"),
    in_series(0.001, "0000000001"),
    in_series(None, "null"),
    (
        BOOKS_BY_TITLE.template,
        f"idx:book:title:a wizard of earthsea:{BOOK_ID}",
        {"normalized_title": "a wizard of earthsea", "id": BOOK_ID},
    ),
    (
        BOOKS_BY_TAG.template,
        f"idx:book:tag:mood%3A calm:{BOOK_ID}",
        {"tag": "mood: calm", "id": BOOK_ID},
    ),
    (
        BOOKS_BY_GENRE.template,
        f"idx:book:genre:fantasy:{BOOK_ID}",
        {"genre": "fantasy", "id": BOOK_ID},
    ),
    (
        BOOKS_BY_ISBN10.template,
        f"idx:book:isbn10:080442957X:{BOOK_ID}",
        {"isbn10": "080442957X", "id": BOOK_ID},
    ),
    (
        BOOKS_BY_ISBN13.template,
        f"idx:book:isbn13:9780306406157:{BOOK_ID}",
        {"isbn13": "9780306406157", "id": BOOK_ID},
    ),
    (
        BOOKS_BY_WORK.template,
        f"idx:book:work:{WORK_ID}:{BOOK_ID}",
        {"work_id": WORK_ID, "id": BOOK_ID},
    ),
    (SEGMENT.template, f"bf:{SEGMENT_ID}", {"id": SEGMENT_ID}),
    (
        SEGMENTS_IN_ORDER.template,
        f"bfi:{BOOK_ID}:0000000001",
        {"book_id": BOOK_ID, "track_number": 1},
    ),
    (
        SEGMENTS_OF_BOOK.template,
        f"idx:segment:book:{BOOK_ID}:{SEGMENT_ID}",
        {"book_id": BOOK_ID, "id": SEGMENT_ID},
    ),
    (
        ITEMS_OF_BOOK.template,
        f"idx:playlist:book:{BOOK_ID}:{OTHER_ID}:0000000001",
        {"book_id": BOOK_ID, "playlist_id": OTHER_ID, "position": 1},
    ),
    (
        BIN_OF_AUTHOR.template,
        f"idx:bin:author:{AUTHOR_ID}:{BOOK_ID}",
        {"author_id": AUTHOR_ID, "id": BOOK_ID},
    ),
    (
        BIN_OF_SERIES.template,
        f"idx:bin:series:{SERIES_ID}:{BOOK_ID}",
        {"series_id": SERIES_ID, "id": BOOK_ID},
    ),
    (
        BIN_OF_WORK.template,
        f"idx:bin:work:{WORK_ID}:{BOOK_ID}",
        {"work_id": WORK_ID, "id": BOOK_ID},
    ),
    (
        WORKS_OF_AUTHOR.template,
        f"idx:work:author:{AUTHOR_ID}:{WORK_ID}",
        {"author_id": AUTHOR_ID, "id": WORK_ID},
    ),
    (
        WORKS_OF_SERIES.template,
        f"idx:work:series:{SERIES_ID}:{WORK_ID}",
        {"series_id": SERIES_ID, "id": WORK_ID},
    ),
    (PLAYLIST.template, f"pl:{OTHER_ID}", {"id": OTHER_ID}),
    (
        PLAYLISTS_OF_USER.template,
        f"idx:playlist:user:{USER_ID}:{OTHER_ID}",
        {"user_id": USER_ID, "id": OTHER_ID},
    ),
    (SHARED_PLAYLISTS.template, f"idx:playlist:shared:{OTHER_ID}", {"id": OTHER_ID}),
    (
        PLAYLIST_ITEM.template,
        f"pli:{OTHER_ID}:0000000012",
        {"playlist_id": OTHER_ID, "position": 12},
    ),
    (
        PLAYBACK.template,
        f"playe:{USER_ID}:{BOOK_ID}:{OTHER_ID}",
        {"user_id": USER_ID, "book_id": BOOK_ID, "at": OTHER_ID},
    ),
    (PROGRESS.template, f"playp:{USER_ID}:{BOOK_ID}", {"user_id": USER_ID, "book_id": BOOK_ID}),
    (WATERMARK.template, f"playw:{USER_ID}:{BOOK_ID}", {"user_id": USER_ID, "book_id": BOOK_ID}),
    (
        LISTENERS_OF_BOOK.template,
        f"idx:play:book:{BOOK_ID}:{USER_ID}",
        {"book_id": BOOK_ID, "user_id": USER_ID},
    ),
    (DURATION_MAP.template, f"b:duration_map:{BOOK_ID}", {"book_id": BOOK_ID}),
    (BOOK_PLAYS.template, f"stats:book:plays:{BOOK_ID}", {"book_id": BOOK_ID}),
    (USER_LISTEN_SECONDS.template, f"stats:user:listen_seconds:{USER_ID}", {"user_id": USER_ID}),
    (BOOK_LISTEN_SECONDS.template, f"stats:book:listen_seconds:{BOOK_ID}", {"book_id": BOOK_ID}),
    (WORK_PLAYS.template, f"stats:work:plays:{WORK_ID}", {"work_id": WORK_ID}),
    (WORK_LISTEN_SECONDS.template, f"stats:work:listen_seconds:{WORK_ID}", {"work_id": WORK_ID}),
    (OPERATION.template, f"op:{OTHER_ID}", {"id": OTHER_ID}),
    (OPERATION_LOG.template, f"opl:{OTHER_ID}:0000000000", {"operation_id": OTHER_ID, "seq": 0}),
    (NEXT_SEQ.template, f"op:{OTHER_ID}:next_seq", {"operation_id": OTHER_ID}),
    (ASSET.template, f"asset:{OTHER_ID}", {"id": OTHER_ID}),
]

STAMPED = {"created_at": AT, "version": 1}
BOOK_VALUE = {
    "id": BOOK_ID,
    "title": "A Wizard of Earthsea",
    "normalized_title": "a wizard of earthsea",
    "author_id": AUTHOR_ID,
    "series_id": SERIES_ID,
    "series_position": 1,
    "work_id": WORK_ID,
    "narrator": "...",
    "edition": "unabridged",
    "language": "en",
    "publisher": "...",
    "isbn10": "080442957X",
    "isbn13": "9780306406157",
    "description": "...",
    "published_year": 0,
    "cover_asset_id": OTHER_ID,
    "tags": ["..."],
    "created_at": AT,
    "updated_at": AT,
    "version": 1,
}
NULLABLE = (
    *(
        "author_id",
        "series_id",
        "work_id",
        "narrator",
        "edition",
        "language",
        "publisher",
        "isbn10",
        "isbn13",
    ),
    "cover_asset_id",
)

VALUES: list[tuple[Record[Any], Any]] = [
    (
        USER,
        {
            "id": USER_ID,
            "username": "...",
            "email": "...",
            "password_hash_algo": "argon2id",
            "password_hash": "base64...",
            "created_at": AT,
            "updated_at": AT,
            "roles": ["admin", "user"],
            "status": "active",
            "version": 1,
        },
    ),
    (
        SESSION,
        {
            "id": OTHER_ID,
            "user_id": USER_ID,
            "created_at": AT,
            "expires_at": AT,
            "ip": "...",
            "user_agent": "...",
            "revoked": False,
            "version": 1,
        },
    ),
    (PREFERENCE, "dark"),
    (PREFERENCE, {"speed": 1.0, "skip": [10, 30], "sleep": None}),
    (AUTHOR, {"id": AUTHOR_ID, "name": "...", "normalized_name": "...", **STAMPED}),
    (
        SERIES,
        {
            "id": SERIES_ID,
            "name": "...",
            "normalized_name": "...",
            "author_id": AUTHOR_ID,
            **STAMPED,
        },
    ),
    (
        SERIES,
        {"id": SERIES_ID, "name": "...", "normalized_name": "...", "author_id": None, **STAMPED},
    ),
    (
        WORK,
        {
            "id": WORK_ID,
            "title": "...",
            "normalized_title": "...",
            "author_id": None,
            "alt_titles": ["..."],
            "series_id": SERIES_ID,
            "updated_at": AT,
            **STAMPED,
        },
    ),
    (BOOK, BOOK_VALUE),
    (BOOK, BOOK_VALUE | dict.fromkeys(NULLABLE) | {"series_position": 1.5}),
    (
        SEGMENT,
        {
            "id": SEGMENT_ID,
            "book_id": BOOK_ID,
            "file_path": "...",
            "format": "m4b",
            "size_bytes": 0,
            "duration_seconds": 0,
            "hash_sha256": "hex",
            "track_number": 1,
            "total_tracks": 10,
            "active": True,
            "superseded_by": None,
            "updated_at": AT,
            **STAMPED,
        },
    ),
    (PLAYLIST, {"id": OTHER_ID, "name": "...", "user_id": USER_ID, "updated_at": AT, **STAMPED}),
    (PLAYLIST_ITEM, BOOK_ID),
    *(
        (
            PLAYBACK,
            {
                "user_id": USER_ID,
                "book_id": BOOK_ID,
                "segment_id": SEGMENT_ID,
                "position_seconds": 0,
                "event_type": event_type,
                "play_speed": 1.0,
                **STAMPED,
            },
        )
        for event_type in ("progress", "start", "pause", "complete")
    ),
    (
        PROGRESS,
        {
            "user_id": USER_ID,
            "book_id": BOOK_ID,
            "segment_id": SEGMENT_ID,
            "position_seconds": 0,
            "percent_complete": 0.0,
            "updated_at": AT,
            "version": 1,
        },
    ),
    (
        DURATION_MAP,
        {
            "segments": [{"id": SEGMENT_ID, "duration": 0, "active": True, "offset_start": 0}],
            "total_duration": 0,
            "version": 1,
        },
    ),
    (BOOK_PLAYS, 7),
    *(
        (
            OPERATION,
            {
                "id": OTHER_ID,
                "type": type_,
                "status": status,
                "started_at": AT,
                "completed_at": None,
                "error": None,
                "progress": {"current": 0, "total": 0},
                "created_by": "system",
                "version": 1,
            },
        )
        for type_, status in zip(
            ("scan", "organize", "transcode", "merge"),
            ("pending", "running", "completed", "failed"),
            strict=True,
        )
    ),
    *(
        (OPERATION_LOG, {"seq": 0, "timestamp": AT, "level": level, "message": "...", "version": 1})
        for level in ("info", "warn", "error")
    ),
    (
        META.done,
        {
            "id": 1,
            "applied_at": AT,
            "description": "...",
            "duration_ms": 12,
            "counts": {"records": 1},
        },
    ),
    (META.version, 1),
    (USER_SECRETS, {"user_id": USER_ID, "hashes": {"api-key": "..."}, "version": 1}),
    (ROLE_PERMISSIONS, {"role": "editor", "permissions": ["books.write"], "version": 1}),
    (
        ARGON2_PARAMS,
        {
            "time_cost": 3,
            "memory_cost_kib": 65536,
            "parallelism": 4,
            "hash_bytes": 32,
            "salt_bytes": 16,
            "version": 1,
        },
    ),
    (
        ASSET,
        {
            "id": OTHER_ID,
            "path": "...",
            "mime": "image/jpeg",
            "size_bytes": 1,
            "hash_sha256": "hex",
            **STAMPED,
        },
    ),
]


@pytest.mark.parametrize(("template", "key", "fields"), KEYS, ids=[key for _, key, _ in KEYS])
def test_every_key_of_the_document_is_built_and_parsed(
    template: Template, key: str, fields: dict[str, object]
) -> None:
    key_round_trips(template, key, fields)
    found = SCHEMA.find(key)
    assert found is not None and found.declared.template is template, (
        "and no other template reads it"
    )


@pytest.mark.parametrize(("record", "value"), VALUES, ids=[record.name for record, _ in VALUES])
def test_every_value_of_the_document_round_trips(record: Record[Any], value: Any) -> None:
    value_round_trips(record, value)


def test_every_declaration_has_an_example_here() -> None:
    shown = {id(template) for template, _, _ in KEYS}
    missing = [declared for _, declared in SCHEMA.declared() if id(declared.template) not in shown]
    assert [each.declared for each in missing] == [META.job]


def test_scans_leave_out_duration_maps_and_sequences() -> None:
    assert BOOK.template.parse(f"b:duration_map:{BOOK_ID}") is None
    assert OPERATION.template.parse(f"op:{OTHER_ID}:next_seq") is None
    assert SCHEMA.overlaps == ((BOOK, DURATION_MAP), (OPERATION, NEXT_SEQ), (NEXT_SEQ, OPERATION))


def test_an_unset_position_sorts_last() -> None:
    def key(position: float | None) -> str:
        return BOOKS_BY_SERIES.template.build(
            {"series_id": SERIES_ID, "series_position": position, "id": BOOK_ID}
        )

    positions = [0, 0.5, 1, 1.5, 2, 10, 100, 9_999_999.999, None]
    assert sorted(map(key, positions)) == [key(position) for position in positions]
    for refused in (-1, 1.0001, 10_000_000, True, "1"):
        with pytest.raises(KeyFieldError, match="series_position"):
            key(refused)  # type: ignore[arg-type]


# Members that never leave the store


def test_hashes_are_not_shown() -> None:
    assert "password_hash" not in USER.shown(User(id=USER_ID, username="a", password_hash="secret"))
    assert set(USER.private) | set(SESSION.private) | set(USER_SECRETS.private) == {
        "password_hash",
        "token_hash",
        "hashes",
    }


def test_a_book_in_the_bin_has_only_the_index_rows_of_the_bin() -> None:
    book = BOOK.unbound.compute(Book(id=BOOK_ID, title="Dune", tags=["x"], author_id=AUTHOR_ID))
    assert sum(len(derived.rows(book, (BOOK_ID,))) for derived in BOOK.unbound.derived) == 3
    book.deleted_at = AT
    found = [key for derived in BOOK.unbound.derived for key in derived.rows(book, (BOOK_ID,))]
    assert found == [
        f"idx:bin:at:2026-01-19T10%3A20%3A30Z:{BOOK_ID}",
        f"idx:bin:author:{AUTHOR_ID}:{BOOK_ID}",
    ]
