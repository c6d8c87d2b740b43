"""The rows of an audiobook library's users through their life: accounts, sessions, and what belongs
to them."""

import pytest
from msgspec.structs import replace

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import UniqueError
from keyhouse.store import Store
from keyhouse_audiobooks.records import (
    Argon2Params,
    Asset,
    RolePermissions,
    Session,
    User,
    UserSecrets,
)
from keyhouse_audiobooks.schema import (
    ARGON2_PARAMS,
    ASSET,
    PREFERENCE,
    ROLE_PERMISSIONS,
    SCHEMAS,
    SESSION,
    USER,
    USER_BY_EMAIL,
    USER_BY_NAME,
    USER_SECRETS,
)
from tests.support.library_stubs import holds, rows, stub
from tests.support.store_driver import NOW_TEXT, Drive, ulid, written

[SCHEMA] = SCHEMAS
ONE, TWO, THREE, FOUR = (ulid(number) for number in range(1, 5))
LATER_TEXT = "2026-01-01T00:01:00Z"


def library(engine: Engine) -> Store:
    return Store(SCHEMA, engine, "library-1")


def test_a_users_rows_from_creation_to_deletion(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        user = User(
            id=ONE, username="Taco", email="Taco@Example.org", password_hash="x", roles=["admin"]
        )
        await store.put(USER, user)
        stamped = {"created_at": NOW_TEXT, "updated_at": NOW_TEXT}
        await holds(
            store,
            {
                f"u:{ONE}": written(USER, user, **stamped),
                "idx:user:username:taco": ONE,
                "idx:user:email:taco@example.org": ONE,
            },
        )
        with pytest.raises(UniqueError):
            await store.put(USER, User(id=TWO, username="TACO ", password_hash="x"))
        found = await store.lookup(USER, USER_BY_NAME, username="tAcO")
        assert found is not None and found.record.id == ONE

        clock.advance(seconds=60)
        renamed = replace(user, username="Belmont", email=None)
        await store.put(USER, renamed)
        assert await store.lookup(USER, USER_BY_EMAIL, email="taco@example.org") is None
        await holds(
            store,
            {
                f"u:{ONE}": written(USER, renamed, created_at=NOW_TEXT, updated_at=LATER_TEXT),
                "idx:user:username:belmont": ONE,
            },
        )
        await store.put(USER, User(id=TWO, username="TACO ", password_hash="x"))
        await store.delete(USER, id=ONE)
        await store.delete(USER, id=TWO)
        await holds(store, {})

    drive(work)


def test_a_session_and_its_index_row_expire_together(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        session = Session(
            id=TWO,
            user_id=ONE,
            expires_at="2026-01-01T01:00:00Z",
            ip="::1",
            user_agent="x",
            token_hash="hash",
        )
        await stub(store, USER, ONE)
        await store.put(SESSION, session)
        session.id, session.expires_at = THREE, "2026-01-01T02:00:00Z"
        await store.put(SESSION, session)
        assert sorted(await rows(store)) == [
            f"idx:sess:user:{ONE}:{TWO}",
            f"idx:sess:user:{ONE}:{THREE}",
            f"sess:{TWO}",
            f"sess:{THREE}",
        ]
        await holds(store, await rows(store))
        session.revoked = True
        await store.put(SESSION, session)
        clock.advance(seconds=3_600)
        assert sorted(await rows(store)) == [f"idx:sess:user:{ONE}:{THREE}", f"sess:{THREE}"]
        await holds(store, await rows(store))
        await store.delete(SESSION, id=THREE)
        await holds(store, {})

    drive(work)


def test_rows_of_records_of_users_and_the_library(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = library(engine)
        await stub(store, USER, ONE)
        await store.put(USER_SECRETS, UserSecrets(user_id=ONE, hashes={"api": "x"}))
        await store.put(PREFERENCE, {"speed": 1.5}, user_id=ONE, key="player:speed")
        await store.put(PREFERENCE, "dark", user_id=ONE, key="theme")
        await store.put(
            ROLE_PERMISSIONS, RolePermissions(role="viewer", permissions=["books.read"])
        )
        params = Argon2Params(
            time_cost=3, memory_cost_kib=65536, parallelism=4, hash_bytes=32, salt_bytes=16
        )
        await store.put(ARGON2_PARAMS, params)
        asset = Asset(
            id=FOUR, path="covers/1.jpg", mime="image/jpeg", size_bytes=1, hash_sha256="hex"
        )
        await store.put(ASSET, asset)
        await holds(
            store,
            {
                f"ua:{ONE}": {"user_id": ONE, "hashes": {"api": "x"}, "version": 1},
                f"pref:{ONE}:player:speed": {"speed": 1.5},
                f"pref:{ONE}:theme": "dark",
                "authz:viewer": {"role": "viewer", "permissions": ["books.read"], "version": 1},
                "meta:auth:argon2_params": written(ARGON2_PARAMS, params),
                f"asset:{FOUR}": written(ASSET, asset, created_at=NOW_TEXT),
                f"idx:asset:hash:hex:{FOUR}": 1,
            },
        )
        assert [entry.values[1] async for entry in store.scan(PREFERENCE, user_id=ONE)] == [
            "player:speed",
            "theme",
        ]
        await store.delete(USER, id=ONE)
        await store.delete(ROLE_PERMISSIONS, role="viewer")
        await store.delete(ARGON2_PARAMS)
        await store.delete(ASSET, id=FOUR)
        await holds(store, {})

    drive(work)
