"""A fact that holds once is a row put with `expect=None`, not the result of a scan."""

import asyncio

import msgspec

from keyhouse.errors import ContentionError, RevisionError
from keyhouse.schema import Record, Schema, Space
from keyhouse.store import Store
from tests.store.support.harness import Harness, everywhere


class User(msgspec.Struct):
    id: str


USER = Record(User, "user:{id}")
SETUP = Record(str, "meta:setup", name="setup")
SCHEMA = Schema("users", USER, SETUP, space=Space("a test"))


async def create_first_admin(store: Store, user: User) -> None:
    async with store.transaction() as tx:
        await tx.put(SETUP, user.id, expect=None)
        await tx.put(USER, user)


@everywhere
async def test_five_setups_at_once_make_one_admin(harness: Harness) -> None:
    async def set_up(number: int) -> bool:
        store = harness.store(SCHEMA, engine=harness.faulty(yields=True))
        try:
            await create_first_admin(store, User(str(number)))
        except (RevisionError, ContentionError):
            return False
        return True

    assert sorted(await asyncio.gather(*map(set_up, range(5)))) == [False] * 4 + [True]
    store = harness.store(SCHEMA)
    [admin] = [entry.record.id async for entry in store.scan(USER)]
    assert await store.get(SETUP) == admin
    assert not await set_up(7)
