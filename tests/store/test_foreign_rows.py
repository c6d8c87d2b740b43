"""Rows that another program wrote into a space: what is expired, newer, unreadable or under a key
that no template builds never ends a read of the others."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Put
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import DataError, NewerError, UnreadableError, UsageError
from keyhouse.schema import Record, Schema, Space
from keyhouse.store import Store, UnreadableRow, verify
from tests.store.support.harness import Harness, all_of, book, everywhere, session
from tests.store.support.library_schema import (
    BOOK,
    BY_SERIES,
    UNTIL,
    UNTIL_BY_USER,
    UNTIL_TOKEN,
)

PAST, FUTURE = "2020-01-01T00:00:00Z", "2030-01-01T00:00:00+02:00"


def foreign(id: str, until: str | None) -> dict[str, bytes | None]:
    """The rows of a session as another program writes them: none of them expires."""
    value = {"id": id, "user": "ann", "token": f"t{id}", "until": until}
    return {
        f"until:s:{id}": msgspec.json.encode(value),
        f"until:user:ann:{id}": b"1",
        f"until:token:t{id}": msgspec.json.encode(id),
    }


@everywhere
async def test_a_record_of_another_program_is_gone_once_its_own_field_is_past(
    harness: Harness,
) -> None:
    """A session with `expires_at` in 2020 was live: only the row's own expiry was looked at."""
    store = harness.store()
    await harness.plant({**foreign("old", PAST), **foreign("new", FUTURE), **foreign("ever", None)})
    assert await store.get(UNTIL, id="old") is None
    assert await store.entry(UNTIL, id="old") is None
    assert await store.lookup(UNTIL, UNTIL_TOKEN, token="told") is None
    found = await store.get_many(UNTIL, [{"id": "old"}, {"id": "new"}])
    assert [each and each.id for each in found] == [None, "new"]
    for by in (None, UNTIL_BY_USER):
        fields: dict[str, Any] = {} if by is None else {"user": "ann"}
        listed = [each.record.id async for each in store.scan(UNTIL, by=by, **fields)]
        assert listed == ["ever", "new"]
    assert await store.count(UNTIL) == 2
    assert (await store.keys(UNTIL))[0] == ["until:s:ever", "until:s:new"]
    assert [values async for values, _ in store.record_rows(UNTIL)] == [("ever",), ("new",)]
    async with store.transaction() as tx:
        assert await tx.get(UNTIL, id="old") is None
        assert await tx.lookup(UNTIL, UNTIL_TOKEN, token="told") is None
        assert await tx.lookup(UNTIL, UNTIL_TOKEN, token="tnew") is not None
    harness.clock.advance(seconds=5 * 366 * 86_400)
    assert await store.get(UNTIL, id="new") is None and await store.count(UNTIL) == 1


@everywhere
async def test_an_expired_record_of_another_program_is_replaced_and_deleted(
    harness: Harness,
) -> None:
    store = harness.store()
    await harness.plant({**foreign("a", PAST), **foreign("b", PAST)})
    put = await store.put(UNTIL, session("a", until=FUTURE, token="new"), expect=None)
    assert put.expires is not None and await store.lookup(UNTIL, UNTIL_TOKEN, token="ta") is None
    assert not await store.delete(UNTIL, id="b")
    rows = await harness.rows()
    assert set(rows) == {"until:s:a", "until:user:ann:a", "until:token:new"}
    assert {expires for _, expires in rows.values()} == {put.expires}
    assert await all_of(verify(store)) == []


@everywhere
async def test_verify_removes_a_record_that_expired_by_its_own_field(harness: Harness) -> None:
    store = harness.store()
    await harness.plant(foreign("a", PAST))
    found = await all_of(verify(store, repair=True))
    assert [(each.kind, each.key, each.repaired) for each in found] == [
        ("wrong", "until:s:a", True)
    ]
    assert await harness.rows() == {}


@everywhere
async def test_an_expiry_that_is_not_a_time_is_unreadable_and_can_be_replaced(
    harness: Harness,
) -> None:
    store = harness.store()
    await harness.plant(foreign("a", "tomorrow"))
    with pytest.raises(UnreadableError) as error:
        await store.get(UNTIL, id="a")
    assert error.value.fields["member"] == "until"
    assert [each.kind for each in await all_of(verify(store))] == ["unreadable"]
    await store.put(UNTIL, session("a", until=FUTURE))
    assert await store.get(UNTIL, id="a") is not None
    await harness.plant(foreign("b", "2026-01-01T00:00:00"))
    assert await store.delete(UNTIL, id="b")


@everywhere
async def test_a_watch_shows_a_record_that_was_written_expired_as_gone(harness: Harness) -> None:
    store = harness.store()
    start = (await store.page(UNTIL)).revision
    await harness.plant(foreign("old", PAST))
    await harness.plant(foreign("new", FUTURE))
    events = store.watch(UNTIL, since=start)
    seen = [await anext(events), await anext(events)]
    await events.aclose()
    assert [(each.values, each.gone) for each in seen] == [(("old",), True), (("new",), False)]
    assert seen[0].record is None


class Document(msgspec.Struct, kw_only=True):
    id: str
    title: str = ""
    version: int = 1


DOCUMENT = Record(Document, "doc/{id}", version=("version", 1))
REQUEST = Record(Document, "request/{name:norm}", name="request", fields={"name": "id"})
DOCUMENTS = Schema("documents", DOCUMENT, REQUEST, space=Space("a space"))

NEWER = b'{"id":"b","title":"","version":2,"visibility":"private"}'


async def documents(harness: Harness) -> Store:
    store = harness.store(DOCUMENTS)
    for id in ("a", "d"):
        await store.put(DOCUMENT, Document(id=id))
    await harness.plant({"doc/b": NEWER, "doc/c": b"x"})
    return store


@everywhere
async def test_a_scan_reports_unreadable_rows_and_continues(harness: Harness) -> None:
    """One document of a newer version, or one that is not JSON, ended every list of all others."""
    store = await documents(harness)
    with pytest.raises(NewerError):
        await all_of(store.scan(DOCUMENT))
    listed = [each.record.id async for each in store.scan(DOCUMENT, unreadable="skip")]
    assert listed == ["a", "d"]
    met: list[UnreadableRow] = []
    async for _ in store.scan(DOCUMENT, unreadable=met.append, reverse=True):
        pass
    assert [(each.row.key, type(each.error)) for each in met] == [
        ("doc/c", UnreadableError),
        ("doc/b", NewerError),
    ]
    assert met[1].row.value == NEWER and met[1].error.fields["key"] == "doc/b"
    page = await store.page(DOCUMENT, limit=2, unreadable="skip")
    assert [each.record.id for each in page.entries] == ["a"]
    assert [each.row.key for each in page.unreadable] == ["doc/b"]
    rest = await store.page(DOCUMENT, limit=2, cursor=page.cursor, unreadable="skip")
    assert [each.record.id for each in rest.entries] == ["d"] and rest.cursor is None
    with pytest.raises(UsageError):
        await store.page(DOCUMENT, unreadable="ignore")  # type: ignore[arg-type]


@everywhere
async def test_get_many_leaves_out_unreadable_rows(harness: Harness) -> None:
    store = await documents(harness)
    addresses = [{"id": id} for id in "abcde"]
    with pytest.raises(DataError):
        await store.get_many(DOCUMENT, addresses)
    met: list[UnreadableRow] = []
    found = await store.get_many(DOCUMENT, addresses, unreadable=met.append)
    assert [each and each.id for each in found] == ["a", None, None, "d", None]
    assert [each.row.key for each in met] == ["doc/b", "doc/c"]


@everywhere
async def test_an_index_leads_past_unreadable_records(harness: Harness) -> None:
    store = harness.store()
    for id in ("1", "2"):
        await store.put(BOOK, book(id, series="s"))
    key = (await store.page(BOOK)).entries[0].key
    await harness.plant({key: b"{}"})
    with pytest.raises(UnreadableError):
        await store.page(BOOK, by=BY_SERIES, series="s")
    page = await store.page(BOOK, by=BY_SERIES, series="s", unreadable="skip")
    assert len(page.entries) == 1 and [each.row.key for each in page.unreadable] == [key]


@everywhere
async def test_a_lookup_of_an_unreadable_record_finds_nothing(harness: Harness) -> None:
    store = harness.store()
    await harness.plant({"until:token:t": b'"a"', "until:s:a": b"x"})
    with pytest.raises(UnreadableError):
        await store.lookup(UNTIL, UNTIL_TOKEN, token="t")
    met: list[UnreadableRow] = []
    assert await store.lookup(UNTIL, UNTIL_TOKEN, token="t", unreadable=met.append) is None
    await harness.plant({"until:token:t": b"not JSON"})
    assert await store.lookup(UNTIL, UNTIL_TOKEN, token="t", unreadable=met.append) is None
    assert [each.row.key for each in met] == ["until:s:a", "until:token:t"]


@everywhere
async def test_a_watch_continues_after_an_unreadable_row(harness: Harness) -> None:
    store = harness.store(DOCUMENTS)
    start = (await store.page(DOCUMENT)).revision
    await documents(harness)
    met: list[UnreadableRow] = []
    await store.put(DOCUMENT, Document(id="z"))
    events = store.watch(DOCUMENT, since=start, unreadable=met.append)
    seen = [(await anext(events)).values for _ in range(3)]
    await events.aclose()
    assert seen == [("a",), ("d",), ("z",)]
    assert [each.row.key for each in met] == ["doc/b", "doc/c"]
    assert all(each.error.fields["revision"] == each.row.revision for each in met)


@everywhere
async def test_a_key_that_no_template_builds_is_in_no_scan(harness: Harness) -> None:
    """A row of another program under a spelling that is not normal was listed with no key values,
    and could be neither read nor deleted."""
    store = harness.store(DOCUMENTS)
    text = b'{"id":"MixedCase","title":"","version":1}'
    await harness.plant({f"request/Mixed{number}": text for number in range(5)})
    await store.put(REQUEST, Document(id="alice"))
    await store.put(REQUEST, Document(id="zoe"))
    for reverse in (False, True):
        listed = [each.values async for each in store.scan(REQUEST, reverse=reverse)]
        assert sorted(listed) == [("alice",), ("zoe",)]
    page = await store.page(REQUEST, limit=1)
    assert [each.values for each in page.entries] == [("alice",)]
    rest = await store.page(REQUEST, limit=1, cursor=page.cursor)
    assert [each.values for each in rest.entries] == [("zoe",)] and rest.cursor is None
    assert await store.count(REQUEST) == 2
    assert (await store.keys(REQUEST))[0] == ["request/alice", "request/zoe"]
    assert {each.kind for each in await all_of(verify(store))} == {"unknown"}


KINDS_OF_ROWS: dict[str, Callable[[str], tuple[str, bytes]]] = {
    "ours": lambda id: ("doc/" + id, msgspec.json.encode(Document(id=id))),
    "newer": lambda id: ("doc/" + id, NEWER),
    "broken": lambda id: ("doc/" + id, b"x"),
    "request": lambda id: ("request/" + id, msgspec.json.encode(Document(id=id))),
    "unknown key": lambda id: ("request/" + id.upper(), b"{}"),
}


@given(
    rows=st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sampled_from([*KINDS_OF_ROWS])),
    limit=st.integers(1, 4),
    reverse=st.booleans(),
)
def test_pages_list_each_readable_row_once_and_each_unreadable_one_once(
    rows: dict[str, str], limit: int, reverse: bool
) -> None:
    async def scenario() -> None:
        engine = MemoryEngine(ManualClock())
        puts = [Put(*KINDS_OF_ROWS[kind](id)) for id, kind in rows.items()]
        if puts:
            await engine.commit("s", Batch(puts=tuple(puts)))
        store = Store(DOCUMENTS, engine, "s")

        def named(*kinds: str) -> list[str]:
            return sorted((id for id, kind in rows.items() if kind in kinds), reverse=reverse)

        for record, kinds in ((DOCUMENT, ("ours",)), (REQUEST, ("request",))):
            found: list[str] = []
            skipped: list[str] = []
            cursor = None
            while True:
                page = await store.page(
                    record, limit=limit, cursor=cursor, reverse=reverse, unreadable="skip"
                )
                found += [str(entry.values[0]) for entry in page.entries]
                skipped += [each.row.key.partition("/")[2] for each in page.unreadable]
                assert len(page.entries) + len(page.unreadable) <= limit
                if (cursor := page.cursor) is None:
                    break
            assert found == named(*kinds)
            assert skipped == (named("newer", "broken") if record is DOCUMENT else [])
            met: list[UnreadableRow] = []
            scan = store.scan(record, reverse=reverse, unreadable=met.append)
            assert [str(entry.values[0]) async for entry in scan] == found
            assert [each.row.key.partition("/")[2] for each in met] == skipped
            assert await store.count(record) == len(found) + len(skipped)

    asyncio.run(scenario())
