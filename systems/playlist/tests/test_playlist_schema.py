"""The playlist service's six buckets: the keys and values of its document, the index, unique names,
and what expires."""

import re
from datetime import date
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.http import canonical_address
from keyhouse.keys import NATS, Template
from keyhouse.schema import Record, Schema, Space, Summary
from keyhouse.store import Store
from keyhouse_playlist.schema import (
    ADMINS,
    BLESSED,
    CHANNEL_PLAY,
    CHANNEL_PUSH,
    CURRENT,
    DAY_LIKES,
    DAY_PLAYS,
    GLOBAL_COUNTERS,
    IP_BLOCK,
    ITEM_COUNTERS,
    ITEM_LIKES,
    LIKED,
    OTP_REQUEST,
    PLAYLIST,
    PLAYLIST_COUNTERS,
    PLAYLIST_INDEX,
    PLAYLIST_NAME,
    PLAYLISTS,
    ROLE,
    SCHEMAS,
    SESSION,
    SNAPSHOT,
    Playlist,
)
from tests.support.store_driver import Drive, holds, key_round_trips, value_round_trips

AT = "2025-12-18T12:34:56Z"
PLAYLIST_ID = "3f0e8b62-5d6c-4c3b-9a53-0c6b6a1d9f10"
SNAPSHOT_ID = "2025-12-18T12:34:56Z-a1b2c3"

SNAPSHOT_VALUE = {
    "snapshot_id": SNAPSHOT_ID,
    "source": "mediacms",
    "created_at": "2025-12-18T12:34:56Z",
    "item_count": 5000,
    "notes": "optional",
    "schema_version": 1,
}

KEYS: list[tuple[Template, str, dict[str, object]]] = [
    (CURRENT.template, "ns/default/current", {}),
    (
        SNAPSHOT.template,
        "ns/default/snapshots/2025-12-18T12=3A34=3A56Z-a1b2c3",
        {"snapshot_id": SNAPSHOT_ID},
    ),
    (ADMINS.template, "ns/default/admins", {}),
    (BLESSED.template, "ns/default/blessed", {}),
    (ROLE.template, "ns/default/roles/TacoBelmont", {"username": "TacoBelmont"}),
    (PLAYLIST_INDEX.template, "ns/default/playlists/index", {}),
    (PLAYLIST.template, f"ns/default/playlists/{PLAYLIST_ID}", {"playlist_id": PLAYLIST_ID}),
    (
        PLAYLIST_NAME.template,
        "ns/default/names/halloween=20marathon",
        {"name": "halloween marathon"},
    ),
    (OTP_REQUEST.template, "ns/default/otp/request/tacobelmont", {"username": "tacobelmont"}),
    (SESSION.template, "ns/default/session/a8Xk-_9", {"session_id": "a8Xk-_9"}),
    (IP_BLOCK.template, "ns/default/ipblock/203.0.113.7", {"ip": "203.0.113.7"}),
    (IP_BLOCK.template, "ns/default/ipblock/2001=3Adb8=3A=3A1", {"ip": "2001:db8::1"}),
    (GLOBAL_COUNTERS.template, "ns/default/counters/global", {}),
    (ITEM_COUNTERS.template, "ns/default/items/8FnmbsrWl", {"video_id": "8FnmbsrWl"}),
    (
        PLAYLIST_COUNTERS.template,
        f"ns/default/playlists/{PLAYLIST_ID}",
        {"playlist_id": PLAYLIST_ID},
    ),
    (
        DAY_PLAYS.template,
        "ns/default/days/2025-12-18/8FnmbsrWl",
        {"day": date(2025, 12, 18), "video_id": "8FnmbsrWl"},
    ),
    (CHANNEL_PUSH.template, "ns/default/apply/lounge", {"channel": "lounge"}),
    (CHANNEL_PLAY.template, "ns/default/plays/lounge/7", {"channel": "lounge", "uid": "7"}),
    (ITEM_LIKES.template, "ns/default/items/8FnmbsrWl/likes", {"video_id": "8FnmbsrWl"}),
    (
        LIKED.template,
        "ns/default/dedupe/8FnmbsrWl/tacobelmont",
        {"video_id": "8FnmbsrWl", "user_id": "tacobelmont"},
    ),
    (
        DAY_LIKES.template,
        "ns/default/days/2025-12-18/8FnmbsrWl",
        {"day": date(2025, 12, 18), "video_id": "8FnmbsrWl"},
    ),
]

VALUES: list[tuple[Record[Any], Any]] = [
    (CURRENT, SNAPSHOT_VALUE),
    (SNAPSHOT, SNAPSHOT_VALUE),
    (SNAPSHOT, {name: value for name, value in SNAPSHOT_VALUE.items() if name != "notes"}),
    (ADMINS, ["TacoBelmont"]),
    (BLESSED, []),
    (ROLE, {"role": "viewer", "updated_at": AT}),
    (ROLE, {"role": "blessed", "updated_at": AT}),
    (ROLE, {"role": "admin", "updated_at": AT}),
    (
        PLAYLIST,
        {
            "playlist_id": PLAYLIST_ID,
            "name": "Halloween Marathon",
            "items": [
                {
                    "video_id": "8FnmbsrWl",
                    "title": "optional",
                    "duration_seconds": 1408,
                    "categories": ["optional"],
                },
                {"video_id": "8FnmbsrWl"},
                {"video_id": "8FnmbsrWl", "title": None},
            ],
            "created_by": "TacoBelmont",
            "created_at": AT,
            "updated_at": AT,
            "schema_version": 1,
        },
    ),
    (
        OTP_REQUEST,
        {
            "requested_at": AT,
            "expires_at": AT,
            "request_ip": "203.0.113.7",
            "request_user_agent": "optional",
            "otp_hash": "$argon2id$…",
            "attempts_remaining": 3,
            "schema_version": 1,
        },
    ),
    (
        SESSION,
        {
            "username": "TacoBelmont",
            "role": "viewer",
            "created_at": AT,
            "expires_at": AT,
            "ip": "203.0.113.7",
            "schema_version": 1,
        },
    ),
    *(
        (IP_BLOCK, {"blocked_until": AT, "reason": reason, "created_at": AT, "schema_version": 1})
        for reason in ("otp_unsolicited", "otp_abuse", "admin_action")
    ),
    (
        GLOBAL_COUNTERS,
        {
            "items_queued": 0,
            "items_played": 0,
            "duration_queued_seconds": 0,
            "duration_played_seconds": 0,
            "updated_at": AT,
            "schema_version": 1,
        },
    ),
    (
        ITEM_COUNTERS,
        {
            "video_id": "8FnmbsrWl",
            "play_count": 12,
            "queue_count": 20,
            "last_played_at": AT,
            "last_queued_at": AT,
            "duration_seconds": 1408,
            "schema_version": 1,
        },
    ),
    (
        PLAYLIST_COUNTERS,
        {"playlist_id": PLAYLIST_ID, "apply_count": 8, "last_applied_at": AT, "schema_version": 1},
    ),
    (
        ITEM_LIKES,
        {"video_id": "8FnmbsrWl", "like_count": 42, "updated_at": AT, "schema_version": 1},
    ),
    (LIKED, {"liked_at": AT, "expires_at": AT, "schema_version": 1}),
    (
        DAY_PLAYS,
        {"day": "2025-12-18", "video_id": "8FnmbsrWl", "play_count": 3, "schema_version": 1},
    ),
    (
        DAY_LIKES,
        {"day": "2025-12-18", "video_id": "8FnmbsrWl", "like_count": 3, "schema_version": 1},
    ),
]

INDEX_VALUE = {
    "playlists": {
        PLAYLIST_ID: {
            "name": "Halloween Marathon",
            "created_by": "TacoBelmont",
            "created_at": AT,
            "updated_at": AT,
        }
    },
    "schema_version": 1,
}


@pytest.mark.parametrize(("template", "key", "fields"), KEYS, ids=[key for _, key, _ in KEYS])
def test_every_key_of_the_document_is_built_and_parsed(
    template: Template, key: str, fields: dict[str, object]
) -> None:
    key_round_trips(template, key, fields | {"namespace": "default"})
    key_round_trips(template.bind({"namespace": "default"}), key, fields)


@pytest.mark.parametrize(("record", "value"), VALUES, ids=[record.name for record, _ in VALUES])
def test_every_value_of_the_document_round_trips(record: Record[Any], value: Any) -> None:
    value_round_trips(record, value)


def test_the_six_buckets_are_the_documents() -> None:
    assert [(schema.name, schema.space.name) for schema in SCHEMAS] == [
        (name, name)
        for name in (
            "kryten_playlist_snapshot",
            "kryten_playlist_acl",
            "kryten_playlist_playlists",
            "kryten_playlist_auth",
            "kryten_playlist_analytics",
            "kryten_playlist_likes",
        )
    ]


NATS_ALPHABET = re.compile(r"[-/_=.a-zA-Z0-9]+")
ANY_ID = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=60
)
IPV6 = st.ip_addresses(v=6).map(str)


@given(address=IPV6, namespace=ANY_ID)
def test_an_address_is_in_the_alphabet_of_nats_and_reads_back(address: str, namespace: str) -> None:
    template = IP_BLOCK.template
    key = template.build({"namespace": namespace, "ip": address})
    assert NATS_ALPHABET.fullmatch(key)
    assert template.parse(key) == {"namespace": namespace, "ip": canonical_address(address)}


@given(identifier=ANY_ID | IPV6, namespace=ANY_ID)
@example(identifier="2001:db8::1", namespace="default")
@example(identifier="a:b", namespace="channel/1")
@example(identifier="=", namespace=".")
@example(identifier="a..b", namespace="=2E")
@example(identifier=">", namespace="*")
@example(identifier="Index", namespace="index")
def test_any_id_but_index_is_in_the_alphabet_of_nats_and_reads_back(
    identifier: str, namespace: str
) -> None:
    for template in (PLAYLIST.template, SNAPSHOT.template):
        fields: dict[str, object] = {"namespace": namespace, template.fields[1]: identifier}
        try:
            key = template.build(fields)
        except KeyFieldError:
            assert identifier == "index" or len(namespace.encode() + identifier.encode()) > 300
            continue
        assert NATS_ALPHABET.fullmatch(key) and ".." not in key and not key.endswith(".")
        assert template.parse(key) == fields


def test_the_id_index_is_impossible(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(PLAYLISTS, engine, "kryten_playlist_playlists")
        with pytest.raises(KeyFieldError, match="index"):
            await store.put(
                PLAYLIST, Playlist(playlist_id="index", name="x", items=[], created_by="x")
            )
        await holds(store, {})

    drive(work)
    assert PLAYLIST.template.parse("ns/default/playlists/index") is None
    for identifier in ("i", "inde", "indexx", "index2", "xindex", "Index", "indez", "=", "index.x"):
        key = PLAYLIST.template.build({"namespace": "default", "playlist_id": identifier})
        assert PLAYLIST.template.parse(key) == {"namespace": "default", "playlist_id": identifier}


def test_a_schema_whose_id_may_be_index_is_rejected_with_a_witness() -> None:
    index = Summary(
        Template("ns/{namespace}/playlists/index", escape=NATS),
        member="playlist_id",
        under="playlists",
    )
    planted = Record(
        Playlist, Template("ns/{namespace}/playlists/{playlist_id}", escape=NATS), index
    )
    with pytest.raises(DeclarationError) as refused:
        Schema(
            "planted",
            planted,
            space=Space("a bucket"),
            fixed={"namespace": "default"},
            overlaps=((planted, index),),
        )
    assert str(refused.value).startswith("Two templates build the same key")
    assert str(refused.value.fields["witness"]).endswith("/playlists/index")


def test_an_index_in_the_scan_of_its_documents_must_be_declared() -> None:
    with pytest.raises(DeclarationError) as refused:
        Schema("planted", PLAYLIST, space=Space("a bucket"), fixed={"namespace": "default"})
    assert "declare the overlap" in str(refused.value)
    assert refused.value.fields["witness"] == "ns/0/playlists/index"
