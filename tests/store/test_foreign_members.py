"""Members that another program wrote into a row: unknown ones, times, versions of shared lists."""

import json
from typing import Any

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from keyhouse.errors import DeclarationError, NewerError, RecordError
from keyhouse.keyring import KeyRing
from keyhouse.schema import MILLISECONDS, Index, Meta, Record, Schema, Space, Summary, Unique
from keyhouse.store import Entry, Store, Transaction, run_job, verify
from tests.store.support.harness import SPACE, Harness, all_of, everywhere


class Item(msgspec.Struct, kw_only=True):
    video: str
    title: str | UnsetType = UNSET


class Owner(msgspec.Struct, kw_only=True, rename="camel"):
    user_name: str
    joined_at: str | None = None


class Playlist(msgspec.Struct, kw_only=True):
    id: str
    name: str = ""
    items: list[Item] = []
    owner: Owner | None = None
    times: list[str] | UnsetType = UNSET
    version: int = 1


class Named(msgspec.Struct, kw_only=True):
    id: str
    name: str


INDEX = Summary(
    "lists/index",
    member="id",
    under="playlists",
    entry=lambda each: {"name": each.name},
    version=("version", 1),
    rebuilt=True,
)
PLAYLIST = Record(
    Playlist,
    "lists/id/{id}",
    INDEX,
    version=("version", 1),
    unknown="keep",
    timestamps=("owner.joined_at", "times"),
    times=MILLISECONDS,
)
LISTS = Schema("lists", PLAYLIST, space=Space("a space"))


async def stored(harness: Harness, key: str = "lists/id/a") -> dict[str, Any]:
    value: dict[str, Any] = json.loads((await harness.rows())[key][0])
    return value


def foreign(**members: Any) -> bytes:
    return json.dumps({"id": "a", "name": "x", "version": 1, **members}).encode()


@everywhere
async def test_a_rewrite_keeps_members_of_newer_programs(harness: Harness) -> None:
    """`visibility` and all later fields were lost by the first rename."""
    store = harness.store(LISTS)
    items = [{"video": "1", "added_by": "bo"}, {"video": "2"}, {"video": "3", "n": 1}]
    owner = {"userName": "ann", "avatar": {"url": "u"}}
    await harness.plant({"lists/id/a": foreign(items=items, owner=owner, visibility="all", n=1.0)})
    found = await store.get(PLAYLIST, id="a")
    assert found is not None
    moved = [found.items[2], Item(video="new"), found.items[0], Item(video="1")]
    await store.put(PLAYLIST, msgspec.structs.replace(found, name="y", items=moved))
    after = await stored(harness)
    assert after["visibility"] == "all" and after["n"] == 1.0 and after["name"] == "y"
    assert after["owner"] == {"userName": "ann", "joinedAt": None, "avatar": {"url": "u"}}
    assert after["items"] == [
        {"video": "3", "n": 1},
        {"video": "new"},
        {"video": "1", "added_by": "bo"},
        {"video": "1"},
    ]
    async with store.transaction() as tx:
        for name in ("1", "2"):
            entry = await tx.entry(PLAYLIST, id="a")
            assert entry is not None
            await tx.put(PLAYLIST, msgspec.structs.replace(entry.record, name=name))
    assert (await stored(harness))["visibility"] == "all", "a second write in one transaction"
    await store.delete(PLAYLIST, id="a")
    await store.put(PLAYLIST, Playlist(id="a"))
    assert "visibility" not in await stored(harness), "it went with the record"


def test_only_a_struct_keeps_unknown_members() -> None:
    with pytest.raises(DeclarationError):
        Record(dict[str, int], "a/{id}", unknown="keep")


@everywhere
async def test_times_are_checked_and_normalised_when_written(harness: Harness) -> None:
    """`"yesterday"` was stored, and failed where the time was needed."""
    store = harness.store(LISTS)
    for text in ("yesterday", "", "2026-01-18", "2026-01-18T12:00:00", "0001-01-01T00:00:00+01:00"):
        with pytest.raises(RecordError) as error:
            await store.put(PLAYLIST, Playlist(id="a", owner=Owner(user_name="", joined_at=text)))
        assert error.value.fields["member"] == "owner.joinedAt"
    with pytest.raises(RecordError):
        await store.put(PLAYLIST, Playlist(id="a", times=["2026-01-18T12:00:00Z", "never"]))
    assert await harness.rows() == {}
    entry = await store.put(
        PLAYLIST,
        Playlist(
            id="a",
            owner=Owner(user_name="", joined_at="2026-01-18T13:00:00.1234+01:00"),
            times=["2026-01-18T12:00:00Z"],
        ),
    )
    assert entry.record.owner == Owner(user_name="", joined_at="2026-01-18T12:00:00.123Z")
    assert (await stored(harness))["times"] == ["2026-01-18T12:00:00.000Z"]


@everywhere
async def test_a_bad_time_of_another_program_does_not_block_a_rewrite(harness: Harness) -> None:
    store = harness.store(LISTS)
    await harness.plant({"lists/id/a": foreign(owner={"userName": "", "joinedAt": "soon"})})
    found = await store.get(PLAYLIST, id="a")
    assert found is not None
    await store.put(PLAYLIST, msgspec.structs.replace(found, name="y"))
    assert (await stored(harness))["owner"]["joinedAt"] == "soon"
    findings = await all_of(verify(store))
    assert [(each.kind, each.detail) for each in findings] == [
        ("wrong", "not a time: owner.joinedAt")
    ]


def test_a_time_that_the_type_does_not_have_is_rejected() -> None:
    for path in ("at", "owner.at", "name.at"):
        with pytest.raises(DeclarationError):
            Record(Playlist, "a/{id}", timestamps=(path,))


async def filled(harness: Harness) -> Store:
    store = harness.store(LISTS)
    for id in "abc":
        await store.put(PLAYLIST, Playlist(id=id, name=id * 2))
    return store


@everywhere
async def test_a_list_of_a_newer_version_is_not_set_back(harness: Harness) -> None:
    store = await filled(harness)
    newer = b'{"playlists":{"a":{"name":"aa","items":3}},"version":2}'
    await harness.plant({"lists/index": newer})
    for write in (store.put(PLAYLIST, Playlist(id="d")), store.delete(PLAYLIST, id="a")):
        with pytest.raises(NewerError):
            await write
    assert (await harness.rows())["lists/index"][0] == newer
    assert await store.get(PLAYLIST, id="d") is None
    assert await store.members(INDEX) == {"a": {"name": "aa", "items": 3}}, "it can be read"
    await all_of(verify(store, repair=True))
    assert (await harness.rows())["lists/index"][0] == newer


@everywhere
async def test_a_list_in_array_form_is_rebuilt_from_the_records(harness: Harness) -> None:
    """The next put made it a map from each id to null."""
    store = await filled(harness)
    row = {"playlists": ["a", "b", "gone", "c"], "version": 1, "etag": "x"}
    await harness.plant({"lists/index": json.dumps(row).encode(), "lists/id/b": b"broken"})
    await store.put(PLAYLIST, Playlist(id="d", name="dd"))
    index = await stored(harness, "lists/index")
    assert index == {
        "playlists": {"a": {"name": "aa"}, "c": {"name": "cc"}, "d": {"name": "dd"}},
        "version": 1,
        "etag": "x",
    }
    await harness.plant({"lists/index": b'["a","c","d"]'})
    await store.delete(PLAYLIST, id="c")
    assert (await stored(harness, "lists/index"))["playlists"] == {
        "a": {"name": "aa"},
        "d": {"name": "dd"},
    }


@everywhere
async def test_a_list_in_array_form_shows_what_the_transaction_wrote(harness: Harness) -> None:
    store = await filled(harness)
    await harness.plant({"lists/index": b'["a","b","c"]'})
    async with store.transaction() as tx:
        await tx.put(PLAYLIST, Playlist(id="a", name="new"))
        await tx.delete(PLAYLIST, id="b")
    assert (await stored(harness, "lists/index"))["playlists"] == {
        "a": {"name": "new"},
        "c": {"name": "cc"},
    }
    assert await all_of(verify(store)) == []


@everywhere
async def test_verify_rebuilds_a_list_in_array_form(harness: Harness) -> None:
    store = await filled(harness)
    before = (await harness.rows())["lists/index"]
    await harness.plant({"lists/index": b'{"playlists":["c","b","a"]}'})
    assert {each.kind for each in await all_of(verify(store, repair=True))} == {"wrong"}
    assert json.loads((await harness.rows())["lists/index"][0]) == json.loads(before[0])


@everywhere
async def test_a_missing_list_is_rebuilt_by_the_next_write(harness: Harness) -> None:
    """Another program wrote the documents, and no list: the next put listed one document."""
    store = harness.store(LISTS)
    documents = {f"lists/id/{id}": foreign(id=id, name=id * 2) for id in "cab"}
    await harness.plant({**documents, "lists/id/bad": b"x"})
    async with store.transaction() as tx:
        await tx.put(PLAYLIST, Playlist(id="d", name="dd"))
        await tx.delete(PLAYLIST, id="b")
    assert (await stored(harness, "lists/index"))["playlists"] == {
        id: {"name": id * 2} for id in "acd"
    }
    for id in "acd":
        await store.delete(PLAYLIST, id=id)
    assert set(await harness.rows()) == {"lists/id/bad"}
    with pytest.raises(DeclarationError):
        Summary("x", member="id", under="ids", rebuilt=True)


SECRET = Record(Playlist, "secret/{id}", name="secret", unknown="keep", sealed=("owner",))
SECRETS = Schema("secrets", SECRET, space=Space("a space"))


@everywhere
async def test_a_sealed_member_and_unknown_ones_are_kept_apart(harness: Harness) -> None:
    """The encrypted form was treated as a member that this code does not know."""
    store = Store(SECRETS, harness.engine, SPACE, key_ring=KeyRing.new())
    secret = Playlist(id="a", owner=Owner(user_name="ann"))
    await store.put(SECRET, secret)
    plain = await stored(harness, "secret/a")
    await harness.plant({"secret/a": json.dumps(plain | {"extra": 1}).encode()})
    for name in ("x", "y"):
        await store.put(SECRET, msgspec.structs.replace(secret, name=name))
    after = await stored(harness, "secret/a")
    assert after["extra"] == 1 and set(after["owner"]) == {"$enc"}
    assert len(json.dumps(after["owner"])) == len(json.dumps(plain["owner"]))
    assert await store.get(SECRET, id="a") == msgspec.structs.replace(secret, name="y")


class Mark(msgspec.Struct, frozen=True):
    at: int


class Marked(msgspec.Struct, kw_only=True):
    id: str
    title: str = ""
    marks: list[Mark] = []
    places: frozenset[Mark] = frozenset()


MARKED = Record(
    Marked,
    "marked/{id}",
    name="marked",
    unknown="keep",
    computed={"marks": lambda value: sorted(value.marks, key=lambda mark: mark.at)},
)
MARKS = Schema("marks", MARKED, space=Space("a space"))


@everywhere
async def test_items_that_a_write_sorts_keep_their_own_members(harness: Harness) -> None:
    """The members of the first item of the document went to the first item of the stored list."""
    store = harness.store(MARKS)
    numbers = [5, 3, 17, 40, 8]
    items = [{"at": number, "note": f"of {number}"} for number in numbers]
    text = json.dumps({"id": "a", "marks": items, "places": items}).encode()

    async def check() -> None:
        row = await stored(harness, "marked/a")
        assert row["marks"] == sorted(items, key=lambda item: numbers_of([item]))
        assert numbers_of(row["places"]) == sorted(numbers)
        assert all(item["note"] == f"of {item['at']}" for item in row["places"])

    await harness.plant({"marked/a": text})
    await store.update(MARKED, {"title": "x"}, id="a")
    await check()
    await harness.plant({"marked/a": text})
    found = await store.get(MARKED, id="a")
    assert found is not None
    await store.put(MARKED, msgspec.structs.replace(found, title="y"))
    await check()
    value, document = MARKED.json.parse_document(text)
    await store.delete(MARKED, id="a")
    await store.transact(lambda tx: tx.put_document(MARKED, value, document))
    await check()


def numbers_of(items: list[dict[str, Any]]) -> list[int]:
    return sorted(item["at"] for item in items)


BY_NAME = Index("by-name:{name}:{id}")
ONE_NAME = Unique("one-name:{name}", value="id")
NAMED = Record(Named, "named:{id}", BY_NAME, ONE_NAME, unknown="keep")
NAMES = Schema("names", NAMED, meta=Meta(), space=Space("a space"))


@everywhere
async def test_every_reader_returns_the_same_entry_with_the_members_that_it_keeps(
    harness: Harness,
) -> None:
    """A job and the fold of a log got entries without them: what they wrote had lost them."""
    store = harness.store(NAMES)
    await store.put(NAMED, Named(id="a", name="x"))
    await harness.plant({"named:a": b'{"id":"a","name":"x","added":1}'})
    entry = await store.entry(NAMED, id="a")
    assert entry is not None and entry.stored is not None and b"added" in entry.stored
    of_jobs: list[Any] = []

    async def step(tx: Transaction, each: Entry[Named]) -> None:
        of_jobs.append(each)

    await run_job(store, "look", NAMED, step)
    page = await store.page(NAMED)
    others = [
        *of_jobs,
        *page.entries,
        *await all_of(store.scan(NAMED)),
        *await all_of(store.scan(NAMED, by=BY_NAME)),
        await store.lookup(NAMED, ONE_NAME, name="x"),
        await store.transact(lambda tx: tx.entry(NAMED, id="a")),
    ]
    assert others == [entry] * 6
