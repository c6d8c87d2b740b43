"""Records are deleted with their owner; a record that is referred to cannot be deleted."""

import asyncio
from pathlib import Path

import pytest

from keyhouse.errors import ConflictError, LeaseError, LimitError, LinkError, RevisionError
from keyhouse.store import Store, Transaction, resume_deletions
from keyhouse.testing.faults import Fault, FaultyEngine, Killed, die, fail
from tests.sizes import size
from tests.store.support.harness import SPACE, Harness, clean, everywhere, findings, played
from tests.store.support.linked_schema import (
    ALL_LISTS,
    AUTHOR,
    BOOK,
    ENTRY,
    LIST,
    LOGIN,
    MARK,
    MARKS_WITH_TAG,
    PERSON,
    SCHEMA,
    SEEN,
    VIEWS,
    Author,
    Book,
    Listing,
    Login,
    Mark,
    Person,
    Seen,
    fill,
    fill_list,
)


@everywhere
async def test_a_deleted_owner_takes_everything_along_in_one_commit(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill(store, "bo", lists=1)
    before = await harness.rows()
    await fill(store, "ada", lists=2)
    engine = harness.faulty()
    assert await harness.store(SCHEMA, engine=engine).delete(PERSON, id="ada")
    assert await store.record_count(MARKS_WITH_TAG, tag="x") == 3, "the marks of the other person"
    assert list(await store.members(ALL_LISTS)) == ["bo-0"]
    assert await harness.rows() == before
    deleting = [batch for batch in engine.batches if "person:ada" in batch.deletes]
    assert len(deleting) == 1 and "entry:ada-1:0002" in deleting[0].deletes
    assert not await store.delete(PERSON, id="ada")
    await clean(store)


@everywhere
async def test_an_owned_record_is_deleted_without_its_owner(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill(store, lists=2)
    assert await store.delete(LIST, id="ada-0")
    assert await store.get(PERSON, id="ada") is not None
    assert await store.get(ENTRY, list="ada-0", position=0) is None
    assert await store.get(ENTRY, list="ada-1", position=0) == "book 0"
    await clean(store)


@everywhere
async def test_a_record_is_not_put_without_its_owner(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    for write in (
        lambda: store.put(ENTRY, "x", list="none", position=1),
        lambda: store.put(MARK, Mark(id="m", list="none")),
        lambda: store.add(VIEWS, 1, list="none"),
        lambda: store.append(SEEN, Seen(what="x"), list="none"),
        lambda: store.put(LIST, Listing(id="l", person="none", title="t")),
        lambda: store.put(LOGIN, Login(id="l", person="none"), ttl=9),
    ):
        with pytest.raises(LinkError, match="belongs to does not exist") as missing:
            await write()
        assert missing.value.fields["missing"] in ("list:none", "person:none")
        assert missing.value.code == "CONFLICT" and missing.value.status == 409
    assert await harness.rows() == {}
    await store.put(LIST, Listing(id="l", person=None, title="of nobody"))
    with pytest.raises(LinkError):
        await store.put(LIST, Listing(id="l", person="none", title="t"))


@everywhere
async def test_owner_and_owned_may_be_put_in_one_transaction_in_any_order(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    async with store.transaction() as tx:
        await tx.put(ENTRY, "x", list="l", position=1)
        await tx.add(VIEWS, 1, list="l")
        await tx.put(LIST, Listing(id="l", title="t"))
    async with store.transaction() as tx:
        await tx.put(MARK, Mark(id="m", list="l"))
        await tx.put(ENTRY, "y", list="l", position=2)
        assert await tx.delete(LIST, id="l")
        assert await tx.get(MARK, id="m") is None and await tx.get(VIEWS, list="l") == 0
    assert not [key for key in await harness.rows() if not key.startswith(("tags", "all-lists"))]
    with pytest.raises(LinkError):
        async with store.transaction() as tx:
            await tx.put(LIST, Listing(id="l", title="t"))
            await tx.put(ENTRY, "x", list="l", position=1)
            await tx.delete(LIST, id="l")
            await tx.put(ENTRY, "x", list="l", position=2)


@everywhere
async def test_an_owner_that_is_replaced_in_one_transaction_loses_its_rows(
    harness: Harness,
) -> None:
    store = harness.store(SCHEMA)
    await fill_list(store, "l", None)
    async with store.transaction() as tx:
        await tx.delete(LIST, id="l")
        await tx.put(LIST, Listing(id="l", title="again"))
    assert await store.get(ENTRY, list="l", position=0) is None
    assert (await store.get(LIST, id="l")) == Listing(id="l", title="again")
    await clean(store)


@everywhere
async def test_a_record_that_is_referred_to_is_not_deleted(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await store.put(AUTHOR, Author(id="a"))
    await store.put(BOOK, Book(id="1", author="a"))
    before = await harness.rows()
    for binned in (False, True):
        await store.put(BOOK, Book(id="1", author="a", binned=binned))
        with pytest.raises(LinkError, match="still referred to") as refused:
            await store.delete(AUTHOR, id="a")
        assert refused.value.fields == {"key": "author:a", "example": "book:1", "record": "book"}
    await store.put(BOOK, Book(id="1", author="a"))
    assert await harness.rows() == before, "nothing is written, and no guard is left"
    async with store.transaction() as tx:
        await tx.delete(AUTHOR, id="a")
        await tx.put(BOOK, Book(id="1"))
    assert await store.get(AUTHOR, id="a") is None
    with pytest.raises(LinkError, match="refers to does not exist"):
        await store.put(BOOK, Book(id="2", author="a"))
    await clean(store)


@everywhere
async def test_a_record_put_while_its_owner_is_deleted_does_not_survive(harness: Harness) -> None:
    """At each call of the deletion another store puts a record that belongs to the owner."""
    for at in range(1, 40):
        space = f"space-{at}"
        store = harness.store(SCHEMA, space)
        await fill(store, lists=1, size=1)
        done: list[str] = []

        async def interfere(space: str = space, done: list[str] = done) -> None:
            other = harness.store(SCHEMA, space)
            try:
                async with other.transaction() as tx:
                    await tx.put(ENTRY, "late", list="ada-0", position=99)
                done.append("put")
            except ConflictError:
                done.append("lost")

        engine = FaultyEngine(harness.engine, Fault(at, None, then=interfere))
        assert await harness.store(SCHEMA, space, engine=engine).delete(PERSON, id="ada")
        left = {key for key in await harness.rows(space) if not key.startswith("tags")}
        assert left == set(), (at, done)
        if not done:
            return
    raise AssertionError("the deletion has ended before the last call")


@everywhere
async def test_a_reference_and_a_deletion_never_both_succeed(harness: Harness) -> None:
    outcomes: set[tuple[bool, bool]] = set()
    for at in range(1, 40):
        space = f"space-{at}"
        store = harness.store(SCHEMA, space)
        await store.put(AUTHOR, Author(id="a"))
        done: list[bool] = []

        async def interfere(space: str = space, done: list[bool] = done) -> None:
            try:
                async with harness.store(SCHEMA, space).transaction() as tx:
                    await tx.put(BOOK, Book(id="1", author="a"))
                done.append(True)
            except ConflictError:
                done.append(False)

        engine = FaultyEngine(harness.engine, Fault(at, None, then=interfere))
        try:
            deleted = await harness.store(SCHEMA, space, engine=engine).delete(AUTHOR, id="a")
        except LinkError:
            deleted = False
        if not done:
            assert outcomes == {(True, False), (False, True)}
            return
        assert done == [not deleted]
        outcomes.add((deleted, done[0]))
        await clean(store)
    raise AssertionError("the deletion has ended before the last call")


@everywhere
async def test_the_guard_of_a_deletion_that_died_holds_nobody_up_for_long(
    harness: Harness,
) -> None:
    store = harness.store(SCHEMA)
    await fill_list(store, "l", None)
    with pytest.raises(Killed):
        await harness.store(SCHEMA, engine=harness.faulty(fail(2, Killed))).delete(LIST, id="l")
    with pytest.raises(ConflictError):
        async with store.transaction() as tx:
            await tx.put(ENTRY, "x", list="l", position=9)
    harness.clock.advance(seconds=5)
    await store.put(ENTRY, "x", list="l", position=9)
    assert not [key for key in await harness.rows() if key.startswith("meta:")]
    await store.delete(LIST, id="l")
    await clean(store)


@everywhere
async def test_a_deletion_expects_a_revision(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill_list(store, "l", None)
    entry = await store.entry(LIST, id="l")
    assert entry is not None
    with pytest.raises(RevisionError):
        await store.delete(LIST, id="l", expect=entry.revision + 1)
    assert await store.get(ENTRY, list="l", position=0) is not None
    assert await store.delete(LIST, id="l", expect=entry.revision)


# More than one commit holds

SMALL = 12
"""Rows of one commit."""


def small(harness: Harness, *faults: object) -> FaultyEngine:
    return FaultyEngine(harness.engine, *faults, rows=SMALL)  # type: ignore[arg-type]


@everywhere
async def test_more_than_a_commit_holds_is_deleted_by_a_job(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill(store, "bo", lists=1)
    before = await harness.rows()
    await fill(store, "ada", lists=3, size=9)
    engine = small(harness)
    limited = harness.store(SCHEMA, engine=engine)
    with pytest.raises(LimitError, match=r"Store\.delete"):
        async with limited.transaction() as tx:
            await tx.delete(PERSON, id="ada")
    engine.batches.clear()
    assert await limited.delete(PERSON, id="ada")
    assert len(engine.batches) > 5
    assert max(len(batch.deletes) + len(batch.puts) for batch in engine.batches) <= SMALL
    assert await harness.rows() == before
    await clean(store)


@everywhere
async def test_a_record_whose_deletion_has_not_ended_is_gone_and_not_put_again(
    harness: Harness,
) -> None:
    store = harness.store(SCHEMA)
    await fill(store, lists=2, size=9)
    with pytest.raises(Killed):
        await harness.store(SCHEMA, engine=small(harness, fail(4, Killed))).delete(PERSON, id="ada")
    assert await store.get(PERSON, id="ada") is None
    with pytest.raises(ConflictError, match="still being deleted"):
        await store.put(PERSON, Person(id="ada", name="again"))
    with pytest.raises(LinkError):
        await store.put(LIST, Listing(id="new", person="ada", title="t"))
    with pytest.raises(LeaseError):
        await store.delete(PERSON, id="ada")
    assert await resume_deletions(store) == 0
    harness.clock.advance(seconds=60)
    assert await resume_deletions(store) == 1
    assert await resume_deletions(store) == 0
    await store.put(PERSON, Person(id="ada", name="again"))
    await clean(store)


CALLS_BETWEEN_KILLS = size(4, 1, 1)
"""The deletion has 155 calls of the engine, 18 of which are commits: each of these is killed."""


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["killed", "killed after the commit", "dead from then on"])
def test_a_deletion_killed_at_every_step_is_resumed_and_ends_once(
    kind: str, tmp_path: Path
) -> None:
    async def story(harness: Harness) -> None:
        for at in range(1, 200, 1 if kind.startswith("killed") else CALLS_BETWEEN_KILLS):
            space = f"space-{at}"
            store = harness.store(SCHEMA, space)
            await fill(store, "bo", lists=1, size=2)
            before = await harness.rows(space)
            await fill(store, "ada", lists=2, size=6)
            fault = {
                "killed": fail(at, Killed),
                "killed after the commit": fail(at, Killed, after=True),
                "dead from then on": die(at),
            }[kind]
            engine = small(harness, fault)
            try:
                await harness.store(SCHEMA, space, engine=engine).delete(PERSON, id="ada")
                if at > 5:
                    return
            except Killed:
                pass
            harness.clock.advance(seconds=60)
            again = harness.store(SCHEMA, space, engine=small(harness))
            await again.delete(PERSON, id="ada")
            await resume_deletions(again)
            expected = {key: row for key, row in before.items() if not key.startswith("login")}
            found = {
                key: row
                for key, row in (await harness.rows(space)).items()
                if not key.startswith("login")
            }
            assert found == expected, at
            await clean(store)
        raise AssertionError("the deletion has more steps than are killed")

    asyncio.run(played(story, "memory", tmp_path))


@everywhere
async def test_an_unreadable_row_does_not_keep_its_owner_alive(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill_list(store, "l", None)
    await harness.plant({"mark:l-0": b"[]", "entry:l:0001": b"{"})
    assert await store.delete(LIST, id="l")
    assert not [key for key in await harness.rows() if key.startswith(("mark:", "entry:"))]


@everywhere
async def test_an_index_row_that_dangles_deletes_nothing_of_another_owner(harness: Harness) -> None:
    store = harness.store(SCHEMA)
    await fill_list(store, "l", None)
    await fill_list(store, "m", None)
    await harness.plant({"marks:l:m-0": b"1", "marks:l:none": b"1"})
    assert await store.delete(LIST, id="l")
    assert await store.get(MARK, id="m-0") is not None
    assert [finding.kind for finding in await findings(store, repair=True)] == ["dangling"] * 2


@everywhere
async def test_restored_rows_need_no_owner(harness: Harness) -> None:
    """An import writes rows in the order of their keys; then `verify` finds what has no owner."""
    store = harness.store(SCHEMA)
    async with store.transaction() as tx:
        await tx.restore(ENTRY, "x", list="l", position=1)
    assert await store.get(ENTRY, list="l", position=1) == "x"


def test_two_stores_delete_one_owner_and_put_its_rows_at_once() -> None:
    async def story(harness: Harness) -> None:
        for number in range(15):
            space = f"{SPACE}-{number}"
            stores = [
                harness.store(SCHEMA, space, engine=harness.faulty(yields=True)) for _ in range(4)
            ]
            await fill(stores[0], lists=1, size=2)

            async def put(store: Store, at: int) -> None:
                try:
                    await store.put(ENTRY, "x", list="ada-0", position=at)
                except LinkError:
                    return

            deleted = await asyncio.gather(
                stores[0].delete(PERSON, id="ada"),
                stores[1].delete(LIST, id="ada-0"),
                *(put(stores[2 + at % 2], 10 + at) for at in range(8)),
            )
            assert deleted[0] is True
            assert {k for k in await harness.rows(space) if not k.startswith("tags")} == set()

    asyncio.run(played(story, "memory", Path()))


@everywhere
async def test_a_record_put_and_deleted_in_one_transaction_is_not_deleted_while_referred_to(
    harness: Harness,
) -> None:
    """The put had not read the stored record, so its deletion looked like that of a new one."""
    store = harness.store(SCHEMA)
    await store.put(AUTHOR, Author(id="a"))
    await store.put(BOOK, Book(id="b", author="a"))

    async def work(tx: Transaction) -> None:
        await tx.put(AUTHOR, Author(id="a"))
        await tx.delete(AUTHOR, id="a")

    with pytest.raises(LinkError):
        await store.transact(work)
    assert await store.get(AUTHOR, id="a") is not None
