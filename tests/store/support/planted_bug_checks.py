"""A small library, and checks that detect planted bugs: scenarios that return problems."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import RevisionError, UniqueError
from keyhouse.schema import (
    Counter,
    FoldResult,
    Index,
    Log,
    LogState,
    Meta,
    Migration,
    Record,
    RecordCount,
    Schema,
    Space,
    Summary,
    Unique,
    fixed,
)
from keyhouse.store import Entry, Store, Transaction, fold, migrate, prune, verify


class Book(Struct, kw_only=True):
    id: str
    title: str
    shelf: str
    copies: int = 0


class Loan(Struct, kw_only=True):
    id: str
    reader: str


class Visit(Struct):
    minutes: int


class Visits(LogState, kw_only=True):
    count: int = 0


def count_visit(state: Visits | None, event: Visit, found: Mapping[str, Any]) -> FoldResult:
    after = Visits(through="", count=1 if state is None else state.count + 1)
    return FoldResult(after, adds=[(MINUTES, event.minutes, {})])


async def one_more_copy(tx: Transaction, entry: Entry[Book]) -> None:
    await tx.put(BOOK, msgspec.structs.replace(entry.record, copies=entry.record.copies + 1))


BY_SHELF = Index("idx:shelf:{shelf}:{id}", name="by_shelf")
BY_TITLE = Unique("idx:title:{title}", value="id", name="by_title")
ON_SHELF = Summary("shelf:{shelf}", member="id", under="ids", name="on_shelf")
PER_SHELF = RecordCount("count:{shelf}", name="per_shelf")
BOOK = Record(Book, "book:{id}", BY_SHELF, BY_TITLE, ON_SHELF, PER_SHELF)
BY_READER = Index("idx:reader:{reader}:{id}", name="by_reader")
LOAN = Record(Loan, "loan:{id}", BY_READER, expiry=fixed(60))
MINUTES = Counter("minutes", name="minutes")
VISITS = Record(Visits, "visits:{door}", name="visits")
VISIT = Log(Visit, "visit:{door}:{at:ulid}", state=VISITS, fold=count_visit)
MORE = Migration(1, "One more copy of each.", BOOK, one_more_copy)
LIBRARY = Schema(
    "library",
    BOOK,
    LOAN,
    MINUTES,
    VISITS,
    VISIT,
    space=Space("a library"),
    meta=Meta(),
    migrations=(MORE,),
)


def book(id: str, title: str, shelf: str = "s", copies: int = 0) -> Book:
    return Book(id=id, title=title, shelf=shelf, copies=copies)


class Crash(Exception):
    """The process was killed here."""


class Failing(MemoryEngine):
    """An engine that crashes at the commit of this number, counted from when it is set."""

    fails_at: int | None = None

    async def commit(self, space: str, batch: Batch) -> int | None:
        if self.fails_at is not None:
            self.fails_at -= 1
            if self.fails_at < 0:
                self.fails_at = None
                raise Crash
        return await super().commit(space, batch)


class Library:
    """A store on an engine that can crash, and its clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.engine = Failing(self.clock)
        self.store = Store(LIBRARY, self.engine, "l")

    async def findings(self) -> list[str]:
        return [f"{finding.kind} {finding.key}" async for finding in verify(self.store)]

    async def crash_at(self, commit: int, work: Awaitable[object]) -> None:
        self.engine.fails_at = commit
        with suppress(Crash):
            await work
        self.engine.fails_at = None


class Meeting:
    """A barrier for the first attempts of two transactions."""

    def __init__(self) -> None:
        self._both = asyncio.Barrier(2)
        self._tries = 0

    async def wait(self) -> None:
        self._tries += 1
        if self._tries <= 2:
            await self._both.wait()


Check = Callable[[Library], Awaitable[list[str]]]
Bug = Callable[[pytest.MonkeyPatch], None]


# The checks


async def all_or_nothing(library: Library) -> list[str]:
    """Records and their derived rows appear together, whichever commit is the last."""
    found = []
    for commit in range(3):
        await library.crash_at(commit, library.store.put(BOOK, book(f"b{commit}", f"t{commit}")))
        found += await library.findings()
    return found


async def moves_leave_nothing_behind(library: Library) -> list[str]:
    await library.store.put(BOOK, book("b", "old", "s1"))
    await library.store.put(BOOK, book("b", "new", "s2"))
    listed = [entry.key async for entry in library.store.scan(BOOK, by=BY_SHELF, shelf="s1")]
    return listed + await library.findings()


async def the_last_one_out_empties_the_shelf(library: Library) -> list[str]:
    await library.store.put(BOOK, book("b", "t", "s1"))
    await library.store.delete(BOOK, id="b")
    return list(await library.store.members(ON_SHELF, shelf="s1")) + await library.findings()


async def counts_follow_every_change(library: Library) -> list[str]:
    totals = []
    for title, shelf in (("a", "s1"), ("b", "s1"), ("b", "s2")):
        await library.store.put(BOOK, book("b", title, shelf))
        totals.append(
            [await library.store.record_count(PER_SHELF, shelf=name) for name in ("s1", "s2")]
        )
    await library.store.delete(BOOK, id="b")
    totals.append(
        [await library.store.record_count(PER_SHELF, shelf=name) for name in ("s1", "s2")]
    )
    return [] if totals == [[1, 0], [1, 0], [0, 1], [0, 0]] else [f"{totals}"]


async def one_title_one_book(library: Library) -> list[str]:
    await library.store.put(BOOK, book("a", "t"))
    try:
        await library.store.put(BOOK, book("b", "t"))
    except UniqueError:
        return await library.findings()
    return ["a second book has the title", *await library.findings()]


async def what_was_read_still_holds(library: Library) -> list[str]:
    """Two transactions read the same book and add a copy each."""
    await library.store.put(BOOK, book("b", "t"))
    both_have_read = Meeting()

    async def work(tx: Transaction) -> None:
        found = await tx.get(BOOK, id="b")
        assert found is not None
        await both_have_read.wait()
        await tx.put(BOOK, msgspec.structs.replace(found, copies=found.copies + 1))

    await asyncio.gather(library.store.transact(work), library.store.transact(work))
    after = await library.store.get(BOOK, id="b")
    return [] if after is not None and after.copies == 2 else [f"{after}"]


async def a_free_title_is_taken_once(library: Library) -> list[str]:
    """Two transactions find the title free."""
    both_have_looked = Meeting()

    async def claim(id: str) -> bool:
        async def work(tx: Transaction) -> None:
            await tx.put(BOOK, book(id, "t"))
            await both_have_looked.wait()

        try:
            await library.store.transact(work)
            return True
        except UniqueError:
            return False

    claimed = await asyncio.gather(claim("a"), claim("b"))
    return ([] if sum(claimed) == 1 else [f"{claimed}"]) + await library.findings()


async def an_expectation_is_kept(library: Library) -> list[str]:
    first = await library.store.put(BOOK, book("b", "t"))
    await library.store.put(BOOK, book("b", "t", copies=1))
    try:
        await library.store.put(BOOK, book("b", "t", copies=9), expect=first.revision)
    except RevisionError:
        return []
    return ["written over a newer one"]


async def expired_is_gone_everywhere(library: Library) -> list[str]:
    await library.store.put(LOAN, Loan(id="a", reader="r"))
    library.clock.advance(seconds=60)
    found = [entry.key async for entry in library.store.scan(LOAN)]
    found += (await library.store.keys(BY_READER))[0]
    found += (
        [str(await library.store.get(LOAN, id="a"))]
        if await library.store.get(LOAN, id="a")
        else []
    )
    return found + await library.findings()


async def a_delimiter_in_a_field_stays_in_it(library: Library) -> list[str]:
    await library.store.put(BOOK, book("c", "t1", "a"))
    await library.store.put(BOOK, book("b", "t2", "a:b"))
    listed = [entry.values[0] async for entry in library.store.scan(BOOK, by=BY_SHELF, shelf="a")]
    return ([] if listed == ["c"] else [f"{listed}"]) + await library.findings()


async def a_migration_changes_each_record_once(library: Library) -> list[str]:
    """However often the runner is killed, at any commit."""
    for number in range(5):
        await library.store.put(BOOK, book(f"b{number}", f"t{number}"))
    for commit in (1, 2, 1, 3):
        await library.crash_at(commit, migrate(library.store))
        library.clock.advance(seconds=3_600)
    await migrate(library.store)
    copies = [entry.record.copies async for entry in library.store.scan(BOOK)]
    return [] if copies == [1] * 5 else [f"{copies}"]


async def an_event_counts_once(library: Library) -> list[str]:
    """Of events that were written past the log: folded in several runs, some of which crash, and
    pruned before the last run."""

    async def imported(tx: Transaction) -> None:
        await tx.restore(VISIT, Visit(10), door="d", at=library.store.ids.new())

    for number in range(6):
        await library.store.transact(imported)
        await library.crash_at(number % 3, fold(library.store, VISIT, door="d"))
    await library.store.transact(imported)
    async for _ in prune(library.store, VISIT, before=library.clock.now() + 1_000):
        pass
    await library.store.transact(imported)
    await fold(library.store, VISIT, door="d")
    state, minutes = await library.store.get(VISITS, door="d"), await library.store.get(MINUTES)
    return [] if state is not None and (state.count, minutes) == (8, 80) else [f"{state} {minutes}"]


async def pages_cover_their_span_and_no_more(library: Library) -> list[str]:
    for id in "abcdef":
        await library.store.put(BOOK, book(id, id, "s1" if id < "e" else "s2"))
    seen: list[object] = []
    cursor: str | None = None
    for _ in range(10):
        page = await library.store.page(BOOK, by=BY_SHELF, shelf="s1", limit=2, cursor=cursor)
        seen += [entry.values[0] for entry in page.entries]
        if (cursor := page.cursor) is None:
            break
    return [] if seen == ["a", "b", "c", "d"] else [f"{seen}"]


async def no_space_shows_in_another(library: Library) -> list[str]:
    await Store(LIBRARY, library.engine, "m").put(BOOK, book("theirs", "t"))
    return [
        entry.key async for entry in library.store.scan(BOOK, by=BY_SHELF)
    ] + await library.findings()


CHECKS: tuple[Check, ...] = (
    all_or_nothing,
    moves_leave_nothing_behind,
    the_last_one_out_empties_the_shelf,
    counts_follow_every_change,
    one_title_one_book,
    what_was_read_still_holds,
    a_free_title_is_taken_once,
    an_expectation_is_kept,
    expired_is_gone_everywhere,
    a_delimiter_in_a_field_stays_in_it,
    a_migration_changes_each_record_once,
    an_event_counts_once,
    pages_cover_their_span_and_no_more,
    no_space_shows_in_another,
)
