"""Verify finds every wrong row, repairs it if possible, and finds nothing in a clean store."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from keyhouse.store import Attempts, Transaction
from tests.store.support.harness import (
    Harness,
    book,
    clean,
    everywhere,
    findings,
    kinds_and_keys,
    played,
    session,
    sound,
)
from tests.store.support.library_schema import (
    BOOK,
    UNTIL,
)

START = 1_767_225_600_000


Damage = dict[str, bytes | None]
OPEN, DONE = (
    b'{"state":"open","asset":"7","topic":"t"}',
    b'{"state":"done","asset":"7","topic":"t"}',
)

REPAIRED: dict[str, tuple[Damage, list[tuple[str, str]]]] = {
    "an index row is gone": ({"idx:tag:x:1": None}, [("missing", "idx:tag:x:1")]),
    "an index row says something else": (
        {"idx:title:title 1:1": b'"2"'},
        [("wrong", "idx:title:title 1:1")],
    ),
    "an index row without a record": ({"idx:tag:z:1": b"1"}, [("dangling", "idx:tag:z:1")]),
    "an index row of no record": ({"idx:tag:x:99": b"1"}, [("dangling", "idx:tag:x:99")]),
    "a unique row is gone": ({"isbn:9": None}, [("missing", "isbn:9")]),
    "a unique row without a record": ({"isbn:7": b'"1"'}, [("dangling", "isbn:7")]),
    "a unique row of no record": ({"isbn:7": b'"99"'}, [("dangling", "isbn:7")]),
    "a unique row held by one who does not earn it": ({"isbn:9": b'"3"'}, [("wrong", "isbn:9")]),
    "a unique row that is not JSON": ({"isbn:9": b"{"}, [("unreadable", "isbn:9")]),
    "a first row is gone": ({"first:s": None}, [("missing", "first:s")]),
    "a first row without a record": ({"first:z": b'"1"'}, [("dangling", "first:z")]),
    "a first row held by one who does not earn it": (
        {"first:s": b'"3"'},
        [("dangling", "first:s")],
    ),
    "a first row of no record": ({"first:s": b'"99"'}, [("dangling", "first:s")]),
    "a summary is gone": ({"shelf:a": None}, [("missing", "shelf:a"), ("wrong", "shelf:a")]),
    "a summary without one member": (
        {"shelf:a": b'{"books":{"1":{"title":"Title 1"}},"v":1}'},
        [("wrong", "shelf:a")],
    ),
    "a summary with another entry": (
        {"shelf:a": b'{"books":{"1":{"title":"?"},"2":{"title":"Title 2"}},"v":1}'},
        [("wrong", "shelf:a")],
    ),
    "a summary with a member too much": (
        {
            "shelf:a": b'{"books":{"1":{"title":"Title 1"},"2":{"title":"Title 2"},'
            b'"3":{"title":"x"}},"v":1}'
        },
        [("dangling", "shelf:a")],
    ),
    "a summary without a record": (
        {"shelf:z": b'{"books":{"1":{"title":"x"}},"v":1}'},
        [("dangling", "shelf:z")],
    ),
    "a summary that is not a list": (
        {"shelf:a": b"{"},
        [("unreadable", "shelf:a"), ("wrong", "shelf:a")],
    ),
    "a member that two stand behind, without either": (
        {"v:open|7": None, "v:done|7": None},
        [("dangling", "seen:t")],
    ),
    "a count is gone": ({"year:0001": None}, [("miscounted", "year:0001")]),
    "a count that is wrong": ({"year:0001": b"5"}, [("miscounted", "year:0001")]),
    "a count that is not a number": ({"year:0001": b'"x"'}, [("miscounted", "year:0001")]),
    "a count of nobody": ({"year:0099": b"1"}, [("miscounted", "year:0099")]),
    "a record without its rows": (
        {"b:5": b'{"id":"5","title":"x","series":"q"}'},
        [
            ("missing", "idx:title:x:5"),
            ("missing", "idx:series:q:null:5"),
            ("missing", "first:q"),
            ("miscounted", "year:0000"),
        ],
    ),
    "rows without their record": (
        {"b:3": None},
        [("dangling", "idx:title:title 3:3"), ("miscounted", "year:0002")],
    ),
}


@pytest.mark.parametrize("name", REPAIRED)
def test_a_wrong_row_is_found_and_repaired(name: str) -> None:
    damage, expected = REPAIRED[name]

    async def story(harness: Harness) -> None:
        store = await sound(harness)
        before = await harness.rows()
        await harness.plant(damage)
        damaged = await harness.rows()
        found = await findings(store)
        assert {kind for kind, _ in kinds_and_keys(found)} >= {expected[0][0]} and not any(
            finding.repaired for finding in found
        )
        assert await harness.rows() == damaged, "without repair, nothing is written"
        found = await findings(store, repair=True)
        assert sorted(kinds_and_keys(found)) == sorted(expected) and all(
            finding.repaired for finding in found
        )
        await clean(store)
        if (
            not {"b:5", "b:3", "v:open|7", "year:0099"} & damage.keys()
            and name != "a first row held by one who does not earn it"
        ):
            after = await harness.rows()
            assert {key: parsed(value) for key, (value, _) in after.items()} == {
                key: parsed(value) for key, (value, _) in before.items()
            }

    run(story)


class NothingWritten(Transaction):
    """A transaction that must buffer no write."""

    def write(self, *_: Any) -> None:
        raise AssertionError("a check has written, and nothing is to be repaired")

    async def merge(self, *_: Any) -> None:
        raise AssertionError("a check has merged, and nothing is to be repaired")


@pytest.mark.parametrize("name", REPAIRED)
def test_a_check_does_not_write_to_find_out(name: str) -> None:
    """Without repair, a shared row was merged into the transaction, which was then discarded."""

    async def story(harness: Harness) -> None:
        store = await sound(harness)
        await harness.plant(REPAIRED[name][0])
        expected = kinds_and_keys(await findings(store))
        store.attempts = Attempts(NothingWritten)
        assert kinds_and_keys(await findings(store)) == expected != []

    run(story)


def parsed(value: bytes) -> Any:
    return msgspec.json.decode(value)


def run(story: Callable[[Harness], Awaitable[None]]) -> None:
    asyncio.run(played(story, "memory", Path()))


UNMENDED: dict[str, tuple[Damage, list[tuple[str, str]]]] = {
    "a record that is not JSON": ({"b:5": b"{"}, [("unreadable", "b:5")]),
    "a record of another type": ({"b:5": b'{"id":"5"}'}, [("unreadable", "b:5")]),
    "a record nested without end": ({"b:map:q": b"[" * 50_000}, [("unreadable", "b:map:q")]),
    "a record whose rows no key can hold": (
        {"b:5": b'{"id":"5","title":" "}'},
        [("unreadable", "b:5")],
    ),
    "a key of no template": ({"what:ever": b"1"}, [("unknown", "what:ever")]),
    "an index row of another shape": ({"idx:tag:x": b"1"}, [("unknown", "idx:tag:x")]),
    "a unique row that is not JSON": ({"isbn:7": b"{"}, [("unreadable", "isbn:7")]),
    "a unique row that leads nowhere": ({"isbn:7": b"5"}, [("unreadable", "isbn:7")]),
    "a unique row that leads to no text": ({"isbn:7": b"null"}, [("unreadable", "isbn:7")]),
    "a summary without a record that is not a list": (
        {"shelf:z": b"5"},
        [("unreadable", "shelf:z")],
    ),
    "a summary of values that are not keys": (
        {"shelf:z": b'{"books":[5]}'},
        [("unreadable", "shelf:z")],
    ),
}


@pytest.mark.parametrize("name", UNMENDED)
def test_unrepairable_rows_are_reported_and_left_until_drop(
    name: str,
) -> None:
    damage, expected = UNMENDED[name]

    async def story(harness: Harness) -> None:
        store = await sound(harness)
        before = await harness.rows()
        await harness.plant(damage)
        damaged = await harness.rows()
        for options in ({}, {"repair": True}):
            found = await findings(store, **options)
            assert kinds_and_keys(found) == expected and not any(
                finding.repaired for finding in found
            )
        assert await harness.rows() == damaged
        found = await findings(store, delete_unreadable=True)
        assert kinds_and_keys(found) == expected and all(finding.repaired for finding in found)
        assert await harness.rows() == before

    run(story)


@everywhere
async def test_two_records_that_claim_one_name_are_a_conflict_that_a_person_decides(
    harness: Harness,
) -> None:
    store = await sound(harness)
    await harness.plant({"b:3": b'{"id":"3","title":"Title 3","isbn":"9","year":2}'})
    damaged = await harness.rows()
    for repair in (False, True):
        found = await findings(store, repair=repair)
        assert (
            kinds_and_keys(found) == [("conflict", "isbn:9")]
            and not found[0].repaired
            and found[0].of == "book"
        )
    assert await harness.rows() == damaged
    await store.put(BOOK, book("3", year=2))
    await clean(store)


@everywhere
async def test_a_record_that_no_longer_reads_keeps_its_rows(harness: Harness) -> None:
    """Its index rows are the only way to find it: they are not dangling."""
    store = await sound(harness)
    await harness.plant({"b:2": b"{"})
    found = await findings(store, repair=True)
    assert ("unreadable", "b:2") in kinds_and_keys(found) and not [
        key for kind, key in kinds_and_keys(found) if kind == "dangling"
    ]
    assert "idx:tag:y:2" in await harness.rows() and "isbn:8" in await harness.rows()


@everywhere
async def test_a_record_that_no_longer_reads_is_counted_nowhere_that_it_was_not(
    harness: Harness,
) -> None:
    """An unreadable record was counted in every count, so a wrong count was repaired to another
    wrong one. A count that may be right is now left unchanged.
    """
    store = await sound(harness)
    await harness.plant({"b:2": b"{", "year:0002": b"7", "year:0099": b"5"})
    found = [
        finding for finding in await findings(store, repair=True) if finding.kind == "miscounted"
    ]
    assert [(finding.key, finding.detail) for finding in found] == [
        ("year:0002", "is 7, should be 1"),
        ("year:0099", "is 5, should be 0"),
    ]
    rows = await harness.rows()
    assert [rows[key][0] for key in ("year:0001", "year:0002", "year:0099")] == [b"2", b"1", b"0"]
    assert [finding.kind for finding in await findings(store, repair=True)] == ["unreadable"]


@everywhere
async def test_a_row_that_expires_at_another_time_than_its_record_is_wrong(
    harness: Harness,
) -> None:
    store = await sound(harness)
    await store.put(UNTIL, session("u", until="2026-01-01T00:05:00Z"))
    await harness.plant(
        {"sliding:user:ann:1": b"1", "until:token:tu": b'"u"'}, expires=START + 5_000
    )
    assert sorted(kinds_and_keys(await findings(store))) == [
        ("wrong", "sliding:user:ann:1"),
        ("wrong", "until:token:tu"),
    ]
    assert len(await findings(store, repair=True)) == 2
    await clean(store)
    harness.clock.advance(seconds=60)
    await clean(store)


@everywhere
async def test_verify_tells_how_far_it_is(harness: Harness) -> None:
    store = await sound(harness)
    progress: list[int] = []
    await findings(store, on_progress=progress.append)
    assert progress == sorted(progress) and progress[-1] == len(await harness.rows())
