"""Invalid input raises its error and writes nothing, and valid input is stored byte for byte, on
every engine.
"""

import asyncio
import base64
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine, Row, Span
from keyhouse.errors import CursorError, DocumentError, KeyFieldError, KeyhouseError, LimitError
from keyhouse.limits import (
    COUNTER_MAX,
    KEY_BYTES_MAX,
    PAGE_ROWS_MAX,
    TTL_SECONDS_MAX,
    VALUE_BYTES_MAX,
)
from keyhouse.schema import Record, document
from keyhouse.store import Store, Transaction, verify
from tests.store.support import hostile_calls
from tests.store.support.hostile_calls import (
    BY_SLUG,
    BY_TITLE,
    DOC,
    DOTTED,
    EVENT,
    GOOD_JSON,
    GOOD_SPACES,
    GOOD_TEXTS,
    HITS,
    NAMED,
    NOTE,
    NUMBERED,
    OTHER,
    PAIR,
    SCHEMA,
    SPACE,
    TICKET,
    Bad,
    Event,
    Note,
)
from tests.support.engine_openers import OPENERS


async def seeded(engine: Engine) -> Store:
    """Return a store with some of everything, next to another tenant's."""
    for space in (SPACE, OTHER):
        store = Store(SCHEMA, engine, space)
        await store.put(NOTE, Note(id="a", title="One", slug="one", position=1, tags=["x"]))
        await store.put(DOC, {"of": space}, id="a")
        await store.put(DOC, [1], id="b")
        await store.put(PAIR, 1, left="a", right="b")
        await store.put(NUMBERED, 1, n=1)
        await store.put(NAMED, 1, name="Ada")
        await store.put(TICKET, "t", id="a", ttl=60)
        await store.add(HITS, 1, id="a")
        await store.put(HITS, COUNTER_MAX, id="full")
        await store.append(EVENT, Event("first"), stream="s")
    return Store(SCHEMA, engine, SPACE)


async def snapshot(engine: Engine) -> tuple[list[list[Row]], int]:
    """Return all rows of both spaces and the revision: if it is unchanged, nothing was written."""
    pages = [await engine.scan(space, Span(), limit=PAGE_ROWS_MAX) for space in (SPACE, OTHER)]
    return [page.rows for page in pages], max(page.revision for page in pages)


def driven(name: str, folder: Path, work: Callable[[Engine], Awaitable[None]]) -> None:
    async def run() -> None:
        engine = await OPENERS[name](folder)(ManualClock())
        try:
            await work(engine)
        finally:
            await engine.close()

    asyncio.run(run())


KINDS = {
    "keys": hostile_calls.KEYS,
    "values": hostile_calls.VALUES,
    "times to live": hostile_calls.TTLS,
    "counters": hostile_calls.COUNTERS,
    "arguments": hostile_calls.ARGUMENTS,
    "cursors": hostile_calls.CURSORS,
}


@pytest.mark.parametrize("engine", OPENERS)
def test_a_hostile_call_is_rejected_by_name_and_writes_nothing(engine: str, tmp_path: Path) -> None:
    """The revision is unchanged after all calls, so none of them wrote; in memory, the call is
    named."""

    async def scenario(opened: Engine) -> None:
        store = await seeded(opened)
        before = await snapshot(opened)
        for kind, calls in KINDS.items():
            for bad in calls:
                assert await met(bad, store) is bad.error, (kind, bad)
                if engine == "memory":
                    assert await snapshot(opened) == before, (kind, bad)
        assert await snapshot(opened) == before
        assert [finding async for finding in verify(store)] == []

    driven(engine, tmp_path, scenario)


async def met(bad: Bad, store: Store) -> type[Exception] | None:
    """Return the exact class of the error, so that a related one is noticed."""
    try:
        await bad.call(store)
    except KeyhouseError as error:
        assert len(str(error)) < 2_000
        return type(error)
    return None


@pytest.mark.parametrize("engine", OPENERS)
def test_a_bad_part_of_a_transaction_leaves_nothing_of_the_rest(
    engine: str, tmp_path: Path
) -> None:
    async def scenario(opened: Engine) -> None:
        store = await seeded(opened)
        before = await snapshot(opened)
        for bad in hostile_calls.BAD_VALUES:

            async def work(tx: Transaction, bad: Bad = bad) -> None:
                await tx.put(NOTE, Note(id="n", title="Two", slug="two"))
                await tx.add(HITS, 1, id="a")
                await tx.delete(DOC, id="b")
                await bad.call(tx)

            with pytest.raises(bad.error):
                await store.transact(work)
            assert await snapshot(opened) == before, bad

    driven(engine, tmp_path, scenario)


@pytest.mark.parametrize(
    "space", ["", "\0", "a\0", "\ud800", "x" * 256, "é" * 128, None, 5, b"x", [], [SPACE]]
)
def test_an_invalid_space_name_opens_no_store(space: Any, tmp_path: Path) -> None:
    async def scenario(opened: Engine) -> None:
        with pytest.raises(KeyFieldError):
            Store(SCHEMA, opened, space)

    driven("memory", tmp_path, scenario)


def test_text_that_is_not_a_document_is_rejected() -> None:
    for text in hostile_calls.BAD_JSON:
        with pytest.raises(DocumentError):
            document.parse(text)


def test_a_truncated_document_is_rejected() -> None:
    whole = document.encode({"a": [1, 2.5, "é\0", None, True], "b": {"c": "x" * 20}})
    for length in range(len(whole)):
        with pytest.raises(DocumentError):
            document.parse(whole[:length])


@pytest.mark.parametrize("engine", OPENERS)
def test_valid_json_is_stored_byte_for_byte(engine: str, tmp_path: Path) -> None:
    async def scenario(opened: Engine) -> None:
        store = Store(SCHEMA, opened, SPACE)
        for number, (text, stored) in enumerate(GOOD_JSON):
            value = document.parse(text)
            await store.put(DOC, value, id=f"d{number:03d}")
            row = await store.row(f"doc:d{number:03d}")
            assert row is not None and row.value == stored, text[:60]
            read = await store.get(DOC, id=f"d{number:03d}")
            assert (
                repr(read)[:10_000] == repr(value)[:10_000]
            )  # tells 1 from 1.0, and -0.0 from 0.0
            assert document.encode(read) == stored
        listed = [entry.record async for entry in store.scan(DOC)]
        assert [document.encode(record) for record in listed] == [stored for _, stored in GOOD_JSON]
        assert [finding async for finding in verify(store)] == []

    driven(engine, tmp_path, scenario)


SERVERS = ("jetstream", "jetstream-buckets", "postgres", "dynamodb")
SHARES = [
    *(pytest.param(name, 5 if name in SERVERS else 1, id=name) for name in OPENERS),
    *(
        pytest.param(name, 1, id=f"{name}, all", marks=pytest.mark.extra)
        for name in OPENERS
        if name in SERVERS
    ),
]
"""Engines, and the share of texts: one in five on a server, since the conformance suite has each
kind of key on every engine."""


@pytest.mark.parametrize(("engine", "share"), SHARES)
def test_every_text_is_a_distinct_key_and_round_trips(
    engine: str, share: int, tmp_path: Path
) -> None:
    texts = GOOD_TEXTS[::share]

    async def scenario(opened: Engine) -> None:
        store, other = Store(SCHEMA, opened, SPACE), Store(SCHEMA, opened, OTHER)
        await other.put(DOC, "other's", id="a")
        theirs = (await snapshot(opened))[0][1]

        async def written(number: int, text: str) -> None:
            await store.put(DOC, number, id=text)
            await store.put(NOTE, Note(id=f"{number:03d}", title=text, slug=text))

        async def found(number: int, text: str) -> None:
            assert await store.get(DOC, id=text) == number
            assert [
                entry.record.title async for entry in store.scan(NOTE, by=BY_TITLE, title=text)
            ] == [text]
            note = await store.lookup(NOTE, BY_SLUG, slug=text)
            assert note is not None and note.record.id == f"{number:03d}"

        async def deleted(number: int, text: str) -> None:
            await store.delete(DOC, id=text)
            await store.delete(NOTE, id=f"{number:03d}")

        async def of_each(work: Callable[[int, str], Awaitable[None]]) -> None:
            await asyncio.gather(*(work(number, text) for number, text in enumerate(texts)))

        await of_each(written)
        await of_each(found)
        assert [entry.values[0] async for entry in store.scan(DOC)] == sorted(texts)
        assert [finding async for finding in verify(store)] == []
        assert (await snapshot(opened))[0][1] == theirs
        await of_each(deleted)
        assert (await snapshot(opened))[0] == [[], theirs]

    driven(engine, tmp_path, scenario)


@pytest.mark.parametrize(("engine", "share"), SHARES)
@pytest.mark.parametrize("record", [PAIR, DOTTED], ids=["plain", "NATS"])
def test_every_pair_of_texts_is_a_distinct_key_and_is_scanned_by_its_first_text(
    engine: str, share: int, record: Record[Any], tmp_path: Path
) -> None:
    async def scenario(opened: Engine) -> None:
        store = Store(SCHEMA, opened, SPACE)
        lefts = [text for text in GOOD_TEXTS if len(text) < 100][:: 3 * share]
        rights = ("a", ":", "..", ">", "%", "a:b", "é", "=", "/")
        await asyncio.gather(
            *(
                store.put(record, [left, right], left=left, right=right)
                for left in lefts
                for right in rights
            )
        )
        assert await store.count(record) == len(lefts) * len(rights)
        for left in lefts:
            found = [(entry.values, entry.record) async for entry in store.scan(record, left=left)]
            assert sorted(found) == sorted(((left, right), [left, right]) for right in rights)

    driven(engine, tmp_path, scenario)


@pytest.mark.parametrize("engine", OPENERS)
def test_keys_and_values_at_the_limit_are_restored(engine: str, tmp_path: Path) -> None:
    async def scenario(opened: Engine) -> None:
        store = Store(SCHEMA, opened, SPACE)
        for longest in (
            "x" * (KEY_BYTES_MAX - 4),
            "é" * ((KEY_BYTES_MAX - 4) // 2),
            "\U0001f600" * ((KEY_BYTES_MAX - 4) // 4),
        ):
            assert len(f"doc:{longest}".encode()) == KEY_BYTES_MAX
            await store.put(DOC, "x" * (VALUE_BYTES_MAX - 2), id=longest)
            assert await store.get(DOC, id=longest) == "x" * (VALUE_BYTES_MAX - 2)
            before = await snapshot(opened)
            with pytest.raises(KeyFieldError):
                await store.put(DOC, 1, id=longest + "x")
            with pytest.raises(LimitError):
                await store.put(DOC, "x" * (VALUE_BYTES_MAX - 1), id=longest)
            assert await snapshot(opened) == before
        await store.put(TICKET, "t", id="a", ttl=TTL_SECONDS_MAX)
        await store.put(HITS, -COUNTER_MAX, id="low")
        await store.add(HITS, COUNTER_MAX, id="low")
        assert await store.get(HITS, id="low") == 0

    driven(engine, tmp_path, scenario)


@pytest.mark.parametrize("engine", OPENERS)
def test_a_space_may_have_any_name_and_shows_no_other_space(engine: str, tmp_path: Path) -> None:
    async def scenario(opened: Engine) -> None:
        await seeded(opened)
        before = await snapshot(opened)
        for space in GOOD_SPACES:
            store = Store(SCHEMA, opened, space)
            assert [entry async for entry in store.scan(DOC)] == [], space
            await store.put(DOC, space, id="a")
            await store.delete(NOTE, id="a")
        for space in GOOD_SPACES:
            store = Store(SCHEMA, opened, space)
            assert [entry.record async for entry in store.scan(DOC)] == [space]
        assert (await snapshot(opened))[0] == before[0]

    driven(engine, tmp_path, scenario)


def test_a_cursor_serves_only_the_scan_that_gave_it(tmp_path: Path) -> None:
    async def scenario(opened: Engine) -> None:
        store = await seeded(opened)
        for number in range(5):
            await store.put(PAIR, number, left="l", right=f"{number}")
            await store.put(PAIR, number, left="m", right=f"{number}")
        cursor = (await store.page(PAIR, left="l", limit=2)).cursor
        assert cursor is not None
        assert [
            entry.record for entry in (await store.page(PAIR, left="l", cursor=cursor)).entries
        ] == [2, 3, 4]
        other = Store(SCHEMA, opened, OTHER)
        calls: list[Awaitable[object]] = [
            store.page(PAIR, left="m", cursor=cursor),
            store.page(PAIR, cursor=cursor),
            store.page(PAIR, left="l", cursor=cursor, reverse=True),
            store.page(PAIR, left="l", prefix="1", cursor=cursor),
            store.page(DOC, cursor=cursor),
            other.page(PAIR, left="l", cursor=cursor),
            store.page(PAIR, left="l", cursor=cursor + "!"),
            store.page(PAIR, left="l", cursor=cursor[:3] + "\n" + cursor[3:]),
            store.page(PAIR, left="l", cursor=cursor[:-1]),
        ]
        for call in calls:
            with pytest.raises(CursorError):
                await call

    driven("memory", tmp_path, scenario)


def sealed(mark: int, key: str) -> str:
    return base64.urlsafe_b64encode(document.encode([mark, key])).decode().rstrip("=")


@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "backward"])
def test_a_forged_cursor_never_leaves_the_span_of_its_scan(reverse: bool, tmp_path: Path) -> None:
    """A client can forge a cursor, but it returns nothing that the scan would not."""

    async def scenario(opened: Engine) -> None:
        store = await seeded(opened)
        for left in ("k", "l", "m"):
            await store.put(PAIR, left, left=left, right="r")
        span = store.binding.record(PAIR).template.span({"left": "l"})
        mark = zlib.crc32(f"{SPACE}\0{span.start}\0{span.stop}\0{reverse}".encode())
        for key in (
            "",
            "\u0001",
            "doc:a",
            "pair:",
            "pair:k:",
            "pair:l:",
            "pair:l:z",
            "pair:m:r:x",
            "zzz",
            "\U0010ffff",
        ):
            page = await store.page(PAIR, left="l", cursor=sealed(mark, key), reverse=reverse)
            assert {entry.record for entry in page.entries} <= {"l"}
        page = await store.page(
            PAIR, left="l", cursor=sealed(mark, "zzz" if reverse else ""), reverse=reverse
        )
        assert [entry.record for entry in page.entries] == [
            "l"
        ]  # the mark is the right one, else all were refused

    driven("memory", tmp_path, scenario)
