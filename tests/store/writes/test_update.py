"""`Store.update`: a merge patch of a stored record, retried when it loses a race."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse import Store
from keyhouse.errors import DocumentError, NotFoundError, RecordError, RevisionError
from keyhouse.schema.merge_patch import merge_patch
from tests.service.schema_service.support.recipes import BOX, DRAFT, RECIPE, VIEWS, Draft, Recipe
from tests.store.support.harness import Harness, everywhere

EXAMPLES: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]
"""The examples of RFC 7396, appendix A."""

json = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
)


@pytest.mark.parametrize(("target", "patch", "merged"), EXAMPLES)
def test_a_patch_merges_as_the_standard_says(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patch(target, patch) == merged


@given(json, json)
def test_a_patch_applied_twice_changes_nothing_more(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


@everywhere
async def test_an_update_changes_only_the_named_members(harness: Harness) -> None:
    store = Store(BOX, harness.engine, "ann")
    await store.put(RECIPE, Recipe("pie", "Pie", "pie", 30, ["a"], note="hot", secret="x"))
    entry = await store.update(RECIPE, {"minutes": 5, "note": None}, id="pie")
    assert (entry.record.minutes, entry.record.note, entry.record.secret) == (5, None, "x")
    found = await store.entry(RECIPE, id="pie")
    assert found is not None and found.revision == entry.revision
    by_minutes = await store.page(RECIPE, by=RECIPE.derived[0], minutes=5)  # type: ignore[arg-type]
    assert [each.record.id for each in by_minutes.entries] == ["pie"]


@everywhere
async def test_an_update_that_is_not_of_the_record_changes_nothing(harness: Harness) -> None:
    store = Store(BOX, harness.engine, "ann")
    before = await store.put(RECIPE, Recipe("pie", "Pie", "pie"))
    bad: list[Any] = [{"minutes": "x"}, {"minute": 1}, {"title": None}, [], {"steps": [{"at": 1}]}]
    for patch in bad:
        with pytest.raises(RecordError):
            await store.update(RECIPE, patch, id="pie")
    with pytest.raises(DocumentError):
        await store.update(RECIPE, {"note": float("nan")}, id="pie")
    with pytest.raises(NotFoundError):
        await store.update(RECIPE, {"minutes": 1}, id="none")
    with pytest.raises(RevisionError):
        await store.update(RECIPE, {"minutes": 1}, id="pie", expect=before.revision + 1)
    found = await store.entry(RECIPE, id="pie")
    assert found is not None and found.revision == before.revision


@everywhere
async def test_concurrent_updates_are_all_applied(harness: Harness) -> None:
    store = Store(BOX, harness.engine, "ann")
    await store.put(RECIPE, Recipe("pie", "Pie", "pie"))
    patches = [{"title": "T"}, {"note": "n"}, {"minutes": 7}, {"tags": ["a"]}, {"secret": "s"}]
    await asyncio.gather(*(store.update(RECIPE, patch, id="pie") for patch in patches))
    found = await store.get(RECIPE, id="pie")
    assert found is not None
    seen = (found.title, found.note, found.minutes, found.tags, found.secret)
    assert seen == ("T", "n", 7, ["a"], "s")


@everywhere
async def test_an_update_keeps_the_ttl_that_was_given(harness: Harness) -> None:
    store = Store(BOX, harness.engine, "ann")
    before = await store.put(DRAFT, Draft("a"), ttl=60, user="ann", name="x")
    harness.clock.advance(seconds=10)
    after = await store.update(DRAFT, {"text": "b"}, user="ann", name="x")
    assert after.expires == before.expires


@everywhere
async def test_many_records_are_put_in_one_commit(harness: Harness) -> None:
    store = Store(BOX, harness.engine, "ann")
    entries = await store.put_many(RECIPE, (Recipe(id, id, id) for id in "abc"))
    assert len({entry.revision for entry in entries}) == 1
    assert [entry.record.id async for entry in store.scan(RECIPE)] == ["a", "b", "c"]


@everywhere
async def test_a_batch_id_tells_whether_its_transaction_was_applied(harness: Harness) -> None:
    store = Store(BOX, harness.engine, "ann")
    assert await store.applied("once") is None

    async def work(tx: Any) -> Any:
        await tx.add(VIEWS, 1, id="pie")
        return tx

    tx = await store.transact(work, batch_id="once")
    assert await store.applied("once") == tx.revision
    assert await store.applied("twice") is None
    assert await Store(BOX, harness.engine, "bob").applied("once") is None
    assert await store.get(VIEWS, id="pie") == 1
