"""The playlist service's six buckets in the store: records through their life, the index, unique
names, and what expires."""

from datetime import date
from typing import Any

import msgspec
import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Engine, Put
from keyhouse.errors import KeyFieldError, NewerError, UniqueError, UnreadableError
from keyhouse.schema import Schema
from keyhouse.store import Store, UnreadableRow, verify
from keyhouse_playlist.schema import (
    ACL,
    ADMINS,
    ANALYTICS,
    AUTH,
    BLESSED,
    CURRENT,
    DAY_LIKES,
    DAY_PLAYS,
    GLOBAL_COUNTERS,
    IP_BLOCK,
    ITEM_COUNTERS,
    ITEM_LIKES,
    LIKED,
    LIKES,
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
    SNAPSHOTS,
    DayLikes,
    DayPlays,
    GlobalCounters,
    IpBlock,
    ItemCounters,
    ItemLikes,
    Liked,
    OtpRequest,
    Playlist,
    PlaylistCounters,
    PlaylistItem,
    RoleOf,
    Session,
    Snapshot,
)
from tests.support.store_driver import NOW_TEXT, Drive, holds, rows

AT = "2025-12-18T12:34:56Z"


def playlist(identifier: str, name: str) -> Playlist:
    return Playlist(
        playlist_id=identifier,
        name=name,
        items=[PlaylistItem(video_id="8FnmbsrWl")],
        created_by="TacoBelmont",
    )


def listed(name: str, updated_at: str = NOW_TEXT) -> dict[str, str]:
    return {
        "name": name,
        "created_by": "TacoBelmont",
        "created_at": NOW_TEXT,
        "updated_at": updated_at,
    }


def document(identifier: str, name: str, updated_at: str = NOW_TEXT) -> dict[str, Any]:
    return {
        "playlist_id": identifier,
        **listed(name, updated_at),
        "items": [{"video_id": "8FnmbsrWl"}],
        "schema_version": 1,
    }


def test_playlists_and_their_index_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(PLAYLISTS, engine, "kryten_playlist_playlists")
        await store.put(PLAYLIST, playlist("p1", "Halloween Marathon"))
        await store.put(PLAYLIST, playlist("p:2", "Christmas"))
        await holds(
            store,
            {
                "ns/default/playlists/p1": document("p1", "Halloween Marathon"),
                "ns/default/playlists/p=3A2": document("p:2", "Christmas"),
                "ns/default/playlists/index": {
                    "playlists": {"p1": listed("Halloween Marathon"), "p:2": listed("Christmas")},
                    "schema_version": 1,
                },
                "ns/default/names/halloween=20marathon": "p1",
                "ns/default/names/christmas": "p:2",
            },
        )
        assert [entry.record.name async for entry in store.scan(PLAYLIST)] == [
            "Christmas",
            "Halloween Marathon",
        ][::-1]
        found = await store.lookup(PLAYLIST, PLAYLIST_NAME, name="  CHRISTMAS ")
        assert found is not None and found.record.playlist_id == "p:2"

        with pytest.raises(UniqueError):
            await store.put(PLAYLIST, playlist("p3", " christmas"))
        with pytest.raises(UniqueError):
            await store.put(PLAYLIST, playlist("p1", "CHRISTMAS"))

        clock.advance(seconds=60)
        later = "2026-01-01T00:01:00Z"
        await store.put(PLAYLIST, playlist("p1", "All Hallows"))
        await store.put(PLAYLIST, playlist("p3", "Halloween Marathon"))
        await store.delete(PLAYLIST, playlist_id="p3")
        await holds(
            store,
            {
                "ns/default/playlists/p1": document("p1", "All Hallows", later),
                "ns/default/playlists/p=3A2": document("p:2", "Christmas"),
                "ns/default/playlists/index": {
                    "playlists": {"p1": listed("All Hallows", later), "p:2": listed("Christmas")},
                    "schema_version": 1,
                },
                "ns/default/names/all=20hallows": "p1",
                "ns/default/names/christmas": "p:2",
            },
        )
        await store.delete(PLAYLIST, playlist_id="p1")
        await store.delete(PLAYLIST, playlist_id="p:2")
        await holds(store, {})

    drive(work)


def test_namespaces_share_a_bucket_and_no_row(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        ours = Store(PLAYLISTS, engine, "kryten_playlist_playlists", namespace="channel:1")
        theirs = Store(PLAYLISTS, engine, "kryten_playlist_playlists", namespace="channel:10")
        await ours.put(PLAYLIST, playlist("p1", "Christmas"))
        await theirs.put(PLAYLIST, playlist("p1", "Christmas"))
        assert await store_count(ours) == await store_count(theirs) == 1
        await ours.delete(PLAYLIST, playlist_id="p1")
        assert sorted(await rows(theirs)) == [
            "ns/channel=3A10/names/christmas",
            "ns/channel=3A10/playlists/index",
            "ns/channel=3A10/playlists/p1",
        ]
        assert await ours.members(PLAYLIST_INDEX) == {}
        await engine.commit(ours.space, Batch(puts=(Put("elsewhere", b"1"),)))
        assert [finding.key async for finding in verify(ours)] == ["elsewhere"], (
            "the other's rows are not unknown"
        )
        assert [finding.key async for finding in verify(theirs)] == ["elsewhere"]

    async def store_count(store: Store) -> int:
        return await store.count(PLAYLIST)

    drive(work)


@pytest.mark.parametrize(
    "index", [b'["p1","gone"]', b'{"playlists":["p1","gone"],"schema_version":1}', None]
)
def test_an_index_in_the_array_form_is_read_and_one_that_is_missing_is_rebuilt(
    drive: Drive, index: bytes | None
) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(PLAYLISTS, engine, "kryten_playlist_playlists")
        await store.put(PLAYLIST, playlist("p1", "Christmas"))
        key = "ns/default/playlists/index"
        batch = Batch(puts=(Put(key, index),)) if index is not None else Batch(deletes=(key,))
        await engine.commit(store.space, batch)
        if index is not None:
            assert list(await store.members(PLAYLIST_INDEX)) == ["p1", "gone"]
        assert [finding.repaired async for finding in verify(store, repair=True)] == [True]
        assert await store.members(PLAYLIST_INDEX) == {"p1": listed("Christmas")}
        await holds(store, await rows(store))

    drive(work)


def test_the_current_snapshot_moves_and_the_others_stay(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(SNAPSHOTS, engine, "kryten_playlist_snapshot")
        old = Snapshot(
            snapshot_id="2025-12-18T12:34:56Z-a",
            source="mediacms",
            created_at="2025-12-18T12:34:56Z",
            item_count=5000,
        )
        new = Snapshot(
            snapshot_id="2026-01-01T00:00:00Z-b",
            source="mediacms",
            created_at=NOW_TEXT,
            item_count=5001,
        )
        for snapshot in (old, new):
            async with store.transaction() as tx:
                await tx.put(SNAPSHOT, snapshot)
                await tx.put(CURRENT, snapshot)
        plain_old = SNAPSHOT.shown(old)
        plain_new = SNAPSHOT.shown(new)
        await holds(
            store,
            {
                "ns/default/current": plain_new,
                "ns/default/snapshots/2025-12-18T12=3A34=3A56Z-a": plain_old,
                "ns/default/snapshots/2026-01-01T00=3A00=3A00Z-b": plain_new,
            },
        )
        await store.delete(SNAPSHOT, snapshot_id=old.snapshot_id)
        await store.delete(SNAPSHOT, snapshot_id=new.snapshot_id)
        await holds(store, {"ns/default/current": plain_new})

    drive(work)


def test_lists_of_names_and_roles_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(ACL, engine, "kryten_playlist_acl")
        await store.put(ADMINS, ["TacoBelmont"])
        await store.put(BLESSED, [])
        await store.put(ROLE, RoleOf(role="blessed"), username="Someone Else")
        await store.put(BLESSED, ["SomeoneElse"])
        await holds(
            store,
            {
                "ns/default/admins": ["TacoBelmont"],
                "ns/default/blessed": ["SomeoneElse"],
                "ns/default/roles/Someone=20Else": {"role": "blessed", "updated_at": NOW_TEXT},
            },
        )
        await store.delete(ADMINS)
        await store.delete(BLESSED)
        await store.delete(ROLE, username="Someone Else")
        await holds(store, {})

    drive(work)


def test_codes_sessions_and_blocks_expire_at_their_own_times(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(AUTH, engine, "kryten_playlist_auth")
        code = OtpRequest(
            requested_at=NOW_TEXT,
            expires_at="2026-01-01T00:05:00+00:00",
            request_ip="203.0.113.7",
            otp_hash="secret",
            attempts_remaining=3,
        )
        session = Session(
            username="TacoBelmont",
            role="viewer",
            created_at=NOW_TEXT,
            expires_at="2026-01-01T12:00:00Z",
            ip="::1",
        )
        block = IpBlock(
            blocked_until="2026-01-04T00:00:00Z", reason="otp_abuse", created_at=NOW_TEXT
        )
        await store.put(OTP_REQUEST, code, username="TacoBelmont")
        await store.put(SESSION, session, session_id="s1")
        await store.put(IP_BLOCK, block, ip="2001:db8::1")
        names = [
            "ns/default/ipblock/2001=3Adb8=3A=3A1",
            "ns/default/otp/request/tacobelmont",
            "ns/default/session/s1",
        ]
        assert sorted(await rows(store)) == names
        assert "otp_hash" not in OTP_REQUEST.shown(code)

        # Two spellings of a name are one person, so there are three attempts and no more.
        code.attempts_remaining = 2
        await store.put(OTP_REQUEST, code, username="tacoBELMONT")
        found = await store.get(OTP_REQUEST, username="TacoBelmont")
        assert found is not None and found.attempts_remaining == 2

        await holds(store, await rows(store))
        clock.advance(seconds=300)
        assert sorted(await rows(store)) == [names[0], names[2]]
        clock.advance(seconds=12 * 3_600 - 300)
        assert sorted(await rows(store)) == [names[0]]
        clock.advance(seconds=60 * 3_600)
        await holds(store, {})

    drive(work)


def test_counters_and_days_from_creation_to_expiry(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(ANALYTICS, engine, "kryten_playlist_analytics")
        today = date(2026, 1, 1)
        for count in (1, 2):
            async with store.transaction() as tx:
                await tx.put(GLOBAL_COUNTERS, GlobalCounters(items_played=count))
                await tx.put(ITEM_COUNTERS, ItemCounters(video_id="8FnmbsrWl", play_count=count))
                await tx.put(
                    PLAYLIST_COUNTERS, PlaylistCounters(playlist_id="p1", apply_count=count)
                )
                await tx.put(DAY_PLAYS, DayPlays(day=today, video_id="8FnmbsrWl", play_count=count))
        stored = await rows(store)
        assert {
            key: value.get("play_count", value.get("items_played")) for key, value in stored.items()
        } == {
            "ns/default/counters/global": 2,
            "ns/default/items/8FnmbsrWl": 2,
            "ns/default/playlists/p1": None,
            "ns/default/days/2026-01-01/8FnmbsrWl": 2,
        }
        await holds(store, stored)
        assert [entry.record.day async for entry in store.scan(DAY_PLAYS, day=today)] == [today]
        clock.advance(seconds=366 * 24 * 3_600)
        await store.delete(GLOBAL_COUNTERS)
        await store.delete(ITEM_COUNTERS, video_id="8FnmbsrWl")
        await store.delete(PLAYLIST_COUNTERS, playlist_id="p1")
        await holds(store, {})

    drive(work)


def test_likes_are_counted_once_a_day_for_each_person(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(LIKES, engine, "kryten_playlist_likes")
        liked = Liked(liked_at=NOW_TEXT, expires_at="2026-01-02T00:00:00Z")
        await store.put(LIKED, liked, video_id="8FnmbsrWl", user_id="TacoBelmont")
        await store.put(ITEM_LIKES, ItemLikes(video_id="8FnmbsrWl", like_count=1))
        await store.put(
            DAY_LIKES, DayLikes(day=date(2026, 1, 1), video_id="8FnmbsrWl", like_count=1)
        )
        assert await store.get(LIKED, video_id="8FnmbsrWl", user_id="tacobelmont") == liked
        stored = await rows(store)
        assert sorted(stored) == [
            "ns/default/days/2026-01-01/8FnmbsrWl",
            "ns/default/dedupe/8FnmbsrWl/tacobelmont",
            "ns/default/items/8FnmbsrWl/likes",
        ]
        await holds(store, stored)
        clock.advance(seconds=24 * 3_600)
        assert await store.get(LIKED, video_id="8FnmbsrWl", user_id="TacoBelmont") is None
        await store.delete(ITEM_LIKES, video_id="8FnmbsrWl")
        await store.delete(DAY_LIKES, day=date(2026, 1, 1), video_id="8FnmbsrWl")
        await holds(store, {})

    drive(work)


@pytest.mark.parametrize("schema", SCHEMAS, ids=[schema.name for schema in SCHEMAS])
def test_a_bucket_has_one_space(drive: Drive, schema: Schema) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        with pytest.raises(KeyFieldError, match="one space"):
            Store(schema, engine, "another")

    drive(work)


def test_documents_of_a_newer_program_do_not_end_the_list(drive: Drive) -> None:
    """One document of schema version 2 made `get` and every list of all others fail."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(PLAYLISTS, engine, "kryten_playlist_playlists")
        await store.put(PLAYLIST, playlist("p1", "Christmas"))
        newer = b'{"playlist_id":"p2","name":"New","schema_version":2,"owner":{}}'
        puts = (
            Put("ns/default/playlists/bad", b"x"),
            Put("ns/default/playlists/p2", newer),
        )
        await engine.commit(store.space, Batch(puts=puts))
        met: list[UnreadableRow] = []
        scan = store.scan(PLAYLIST, unreadable=met.append)
        assert [entry.record.playlist_id async for entry in scan] == ["p1"]
        assert [(each.row.key, type(each.error)) for each in met] == [
            ("ns/default/playlists/bad", UnreadableError),
            ("ns/default/playlists/p2", NewerError),
        ]
        with pytest.raises(NewerError):
            await store.put(PLAYLIST, playlist("p2", "Old"))

    drive(work)


def test_an_index_of_a_newer_program_is_not_set_back(drive: Drive) -> None:
    """The next put made `schema_version` 1 of it."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(PLAYLISTS, engine, "kryten_playlist_playlists")
        index = Put("ns/default/playlists/index", b'{"playlists":{},"schema_version":2}')
        await engine.commit(store.space, Batch(puts=(index,)))
        with pytest.raises(NewerError):
            await store.put(PLAYLIST, playlist("p1", "Christmas"))
        assert list(await rows(store)) == [index.key]

    drive(work)


def test_a_session_of_another_program_ends_at_its_own_time(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(AUTH, engine, "kryten_playlist_auth")
        session = {"username": "bo", "role": "viewer", "ip": "::1", "created_at": NOW_TEXT}
        puts = tuple(
            Put(f"ns/default/session/{name}", msgspec.json.encode(session | {"expires_at": until}))
            for name, until in (("old", "2020-01-01T00:00:00Z"), ("new", "2030-01-01T00:00:00Z"))
        )
        mixed = Put("ns/default/otp/request/MixedCase", b"{}")
        await engine.commit(store.space, Batch(puts=(*puts, mixed)))
        assert await store.get(SESSION, session_id="old") is None
        assert await store.get(SESSION, session_id="new") is not None
        assert [entry.values async for entry in store.scan(SESSION)] == [("new",)]
        assert [entry async for entry in store.scan(OTP_REQUEST)] == []

    drive(work)


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ("1.2.3.4", "1.2.3.4"),
        ("::ffff:1.2.3.4", "1.2.3.4"),
        (" 2001:DB8:0::1 ", "2001=3Adb8=3A=3A1"),
    ],
)
def test_an_address_is_blocked_in_any_spelling(drive: Drive, given: str, key: str) -> None:
    """`::ffff:1.2.3.4`, as a proxy gives it, was another address than `1.2.3.4`."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store = Store(AUTH, engine, "kryten_playlist_auth")
        block = IpBlock(
            blocked_until="2026-01-02T00:00:00Z", reason="admin_action", created_at=NOW_TEXT
        )
        await store.put(IP_BLOCK, block, ip=given)
        assert list(await rows(store)) == [f"ns/default/ipblock/{key}"]
        assert await store.get(IP_BLOCK, ip=given.upper()) is not None
        for wrong in ("", "1.2.3", "localhost", "1.2.3.4/8"):
            with pytest.raises(KeyFieldError):
                await store.put(IP_BLOCK, block, ip=wrong)

    drive(work)
