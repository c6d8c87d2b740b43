"""Sealed members: encrypted in the row, found by HMAC, bound to their row, and rotated by a job."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.engine import Batch, Put
from keyhouse.errors import DeclarationError, KeyFieldError, UnreadableError, UsageError
from keyhouse.keyring import KeyRing
from keyhouse.schema import Index, Meta, Record, Schema, Space, Unique
from keyhouse.store import Store, convert_prefix, has_sealed, reseal, verify
from keyhouse.testing.faults import Killed, die
from tests.store.support.harness import SPACE, Harness, everywhere


class User(msgspec.Struct, kw_only=True):
    id: str
    email: str | None = None
    notes: list[str] = []
    name: str = ""


BY_EMAIL = Unique("idx:email:{email:hmac}", value="id")
USER = Record(User, "u:{id}", BY_EMAIL, sealed=("email", "notes"))
USERS = Schema("users", USER, meta=Meta(), space=Space("one"))
RING = KeyRing.new()
ANN = User(id="1", email="ann@example.org", notes=["café", "n°2"], name="Ann")


def opened(harness: Harness, ring: KeyRing | None = RING, space: str = SPACE) -> Store:
    return Store(USERS, harness.engine, space, key_ring=ring)


@everywhere
async def test_a_sealed_member_is_not_in_the_row_nor_in_a_key(harness: Harness) -> None:
    store = opened(harness)
    entry = await store.put(USER, ANN)
    assert entry.record == ANN
    rows = await harness.rows()
    text = "".join(key + value.decode() for key, (value, _) in rows.items())
    assert "ann@example.org" not in text and "café" not in text
    stored = json.loads(rows["u:1"][0])
    assert stored["name"] == "Ann" and set(stored["email"]["$enc"]) == {"k", "n", "c"}
    assert await store.get(USER, id="1") == ANN
    assert [each.record async for each in store.scan(USER)] == [ANN]


@everywhere
async def test_a_record_is_found_by_the_hmac_of_its_member(harness: Harness) -> None:
    store = opened(harness)
    await store.put(USER, ANN)
    found = await store.lookup(USER, BY_EMAIL, email="ann@example.org")
    assert found is not None and found.record == ANN
    assert await store.lookup(USER, BY_EMAIL, email="Ann@example.org") is None
    await store.put(USER, msgspec.structs.replace(ANN, email="new@example.org"))
    assert await store.lookup(USER, BY_EMAIL, email="ann@example.org") is None
    assert [each async for each in verify(store)] == []


@everywhere
async def test_a_null_member_stays_null(harness: Harness) -> None:
    store = opened(harness)
    await store.put(USER, User(id="2"))
    assert json.loads((await harness.rows())["u:2"][0])["email"] is None
    assert await store.get(USER, id="2") == User(id="2")


@everywhere
async def test_without_the_key_ring_nothing_is_written_and_reads_say_what_is_missing(
    harness: Harness,
) -> None:
    await opened(harness).put(USER, ANN)
    before = await harness.rows()
    blind = opened(harness, None)
    with pytest.raises(UnreadableError, match="key ring"):
        await blind.get(USER, id="1")
    with pytest.raises(KeyFieldError, match="key ring"):
        await blind.lookup(USER, BY_EMAIL, email="ann@example.org")
    with pytest.raises((UsageError, KeyFieldError), match="key ring"):
        await blind.put(USER, User(id="3", email="bo@example.org"))
    with pytest.raises(UnreadableError, match="no key of this id"):
        await opened(harness, KeyRing.new("other")).get(USER, id="1")
    assert await harness.rows() == before


@everywhere
async def test_a_sealed_value_does_not_open_in_another_row_space_or_member(
    harness: Harness,
) -> None:
    store = opened(harness)
    await store.put(USER, ANN)
    [row] = await harness.engine.read(SPACE, ["u:1"])
    assert row is not None
    stored = json.loads(row.value)
    swapped = {**stored, "email": stored["notes"], "notes": stored["email"]}
    for space, key, value in (
        (SPACE, "u:2", row.value.replace(b'"id":"1"', b'"id":"2"')),
        ("another", "u:1", row.value),
        (SPACE, "u:1", json.dumps(swapped).encode()),
    ):
        await harness.engine.commit(space, Batch(puts=(Put(key, value),)))
        with pytest.raises(UnreadableError, match="was changed") as refused:
            await opened(harness, space=space).get(USER, id=key[2:])
        assert refused.value.fields["member"] in ("email", "notes")


@everywhere
async def test_a_member_that_was_written_in_clear_is_read_and_sealed_by_the_next_write(
    harness: Harness,
) -> None:
    await harness.plant({"u:1": msgspec.json.encode(ANN)})
    store = opened(harness)
    assert await store.get(USER, id="1") == ANN
    await store.put(USER, ANN)
    assert b"ann@" not in (await harness.rows())["u:1"][0]


@everywhere
async def test_rotation_seals_with_the_new_key_and_the_old_one_can_be_removed(
    harness: Harness,
) -> None:
    store = opened(harness)
    for number in range(250):
        await store.put(USER, User(id=str(number), email=f"{number}@example.org"))
    rotated = RING.rotated()
    assert await reseal(opened(harness, rotated)) == 250
    assert await reseal(opened(harness, rotated)) == 0
    only_new = KeyRing(
        {rotated.current: rotated.keys[rotated.current]},
        current=rotated.current,
        index_key=rotated.index_key,
    )
    store = opened(harness, only_new)
    found = await store.lookup(USER, BY_EMAIL, email="77@example.org")
    assert found is not None and found.record.id == "77"
    assert [each async for each in verify(store)] == []


IN_CLEAR = Record(User, "u:{id}", Unique("idx:clear:{email:norm}", value="id"))
BEFORE = Schema("users", IN_CLEAR, meta=Meta(), space=Space("one"))


@everywhere
async def test_a_space_written_in_clear_is_sealed_with_its_index(harness: Harness) -> None:
    """A service that got a key ring had to know the keys of the index rows to delete."""
    former = Store(BEFORE, harness.engine, SPACE)
    await former.put_many(IN_CLEAR, [ANN, User(id="2"), User(id="3", email="bo@example.org")])
    assert not await has_sealed(opened(harness, None))
    store = opened(harness)
    await store.put(USER, User(id="4", email="cy@example.org"))
    assert await has_sealed(opened(harness, None))
    assert await reseal(store, before=BEFORE) == 3 + 1 + 3  # two users with an index row
    assert await reseal(store, before=BEFORE) == 0
    rows = await harness.rows()
    assert not any("example.org" in key + value.decode() for key, (value, _) in rows.items())
    assert [each async for each in verify(store)] == []
    found = await store.lookup(USER, BY_EMAIL, email="ann@example.org")
    assert found is not None and found.record == ANN


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_rotation_that_is_killed_at_any_call_is_continued(tmp_path: Path, after: bool) -> None:
    """Each record is sealed again exactly once, wherever the job was cut off."""
    rotated = RING.rotated()

    async def was_killed(call: int) -> bool:
        harness = Harness("memory", tmp_path)
        store = opened(harness)
        for number in range(120):
            await store.put(USER, User(id=f"{number:03}", email=f"{number}@example.org"))
        faulty = harness.faulty(die(call, after=after))
        killed = False
        try:
            await reseal(Store(USERS, faulty, SPACE, key_ring=rotated))
        except Killed:
            killed = True
        harness.clock.advance(seconds=120)  # the lease of the run that was killed ends
        await reseal(opened(harness, rotated))
        rows = await harness.rows()
        ids = {json.loads(rows[f"u:{n:03}"][0])["email"]["$enc"]["k"] for n in range(120)}
        assert ids == {rotated.current}
        assert [each async for each in verify(opened(harness, rotated))] == []
        return killed

    calls = next(call for call in range(1, 200) if not asyncio.run(was_killed(call)))
    assert calls > 8, "the kills did not reach every call"


@everywhere
async def test_a_prefix_conversion_leaves_sealed_members_readable(harness: Harness) -> None:
    await opened(harness).put(USER, ANN)
    target = USERS.under("tenant:{space}:")
    await convert_prefix(harness.engine, SPACE, USERS, target)
    store = Store(target, harness.engine, SPACE, key_ring=RING)
    assert await store.get(USER, id="1") == ANN
    found = await store.lookup(USER, BY_EMAIL, email="ann@example.org")
    assert found is not None


def test_a_key_ring_is_a_file_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    RING.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    loaded = KeyRing.load(path)
    assert (loaded.keys, loaded.current, loaded.index_key) == (
        RING.keys,
        RING.current,
        RING.index_key,
    )
    assert not any(key.hex() in repr(loaded) for key in RING.keys.values())
    path.write_text("{}")
    with pytest.raises(UsageError, match="not a key ring"):
        KeyRing.load(path)
    with pytest.raises(UsageError, match="check its path"):
        KeyRing.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    "options",
    [
        {"current": "2"},
        {"keys": {"1": b"short"}},
        {"index_key": b""},
    ],
)
def test_an_invalid_key_ring_is_rejected(options: dict[str, Any]) -> None:
    valid: dict[str, Any] = {"keys": {"1": bytes(32)}, "current": "1", "index_key": bytes(32)}
    with pytest.raises(UsageError):
        KeyRing(**valid | options)


@pytest.mark.parametrize(
    ("derived", "options", "reason"),
    [
        (Index("idx:{email}:{id}"), {}, "only as an HMAC"),
        (Index("idx:{mail}:{id}", fields={"mail": "email"}), {}, "only as an HMAC"),
        (Index("idx:{id}", value="email"), {}, "value of an index"),
        (Index("idx:{name}:{id}"), {"sealed": ("mail",)}, "no such attributes"),
        (Index("idx:{name}:{id}"), {"created": "email"}, "in clear"),
    ],
)
def test_a_sealed_member_that_would_be_stored_in_clear_is_rejected(
    derived: Index, options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DeclarationError, match=reason):
        Record(User, "u:{id}", derived, **{"sealed": ("email",), **options})
