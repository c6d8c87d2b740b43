"""A restored record keeps its times and its expiry, and has its derived rows."""

from typing import Any

import msgspec
import pytest

from keyhouse.errors import DocumentError, RecordError, RevisionError, UsageError
from tests.store.support.harness import Harness, book, clean, everywhere, session
from tests.store.support.library_schema import BOOK, BY_TITLE, SLIDING, SLIDING_TOKEN

OLD = "2020-02-02T02:02:02.002Z"


@everywhere
async def test_a_restored_record_keeps_its_times_and_has_its_rows(harness: Harness) -> None:
    store = harness.store()
    was = book(
        isbn="9", series="s", position=1.5, year=5, shelf="top", created_at=OLD, updated_at=OLD
    )
    async with store.transaction() as tx:
        await tx.restore(BOOK, was)
    assert await store.get(BOOK, id="1") == was
    await clean(store)
    async with store.transaction() as tx:  # over one that is there
        entry = await tx.restore(BOOK, book(title="Another", created_at="never", updated_at=OLD))
    assert entry.record.created_at == "never"
    assert [found.record.title async for found in store.scan(BOOK, by=BY_TITLE)] == ["Another"]
    await clean(store)


@everywhere
async def test_a_restored_record_expires_when_it_would_have(harness: Harness) -> None:
    store = harness.store()
    until = harness.clock.now() + 1_234
    async with store.transaction() as tx:
        await tx.restore(SLIDING, session(), expires=until)
    assert {expires for _, expires in (await harness.rows()).values()} == {until}
    harness.clock.advance(milliseconds=1_234)
    assert await store.get(SLIDING, id="1") is None
    assert await store.lookup(SLIDING, SLIDING_TOKEN, token="t1") is None


@everywhere
async def test_an_invalid_backup_changes_nothing(harness: Harness) -> None:
    store = harness.store()
    async with store.transaction() as tx:
        with pytest.raises(UsageError):
            await tx.restore(BOOK, book(), expires=harness.clock.now() + 1)
        with pytest.raises(RecordError):
            await tx.restore(SLIDING, session(), expires=harness.clock.now())
        with pytest.raises(RevisionError):
            await tx.restore(BOOK, book(), expect=7)
        assert tx.pending == 0
    assert await harness.rows() == {}


def test_plain_json_is_accepted_as_the_record_it_is() -> None:
    plain = msgspec.to_builtins(book(created_at=OLD))
    assert BOOK.json.accepted(plain) == book(created_at=OLD)
    wrong: list[Any] = [{**plain, "year": "5"}, {"id": "1"}, [], None, "text"]
    for each in wrong:
        with pytest.raises(RecordError):
            BOOK.json.accepted(each)
    assert BOOK.json.parse(msgspec.json.encode(plain)) == book(created_at=OLD)
    for text in (b"", b"{", b"[" * 200, b'"\xff"'):
        with pytest.raises(DocumentError):
            BOOK.json.parse(text)
