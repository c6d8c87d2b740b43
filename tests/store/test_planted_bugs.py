"""Bugs that a store of this kind is likely to have, planted one at a time: each is caught by a check of its own.

A check is a short scenario that says what is wrong in words. It finds nothing wrong without the bug, and something with it:
so it is known that it looks, and where.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from msgspec import Struct

from keyhouse.clock import ManualClock
from keyhouse.engine import Batch, Page, Row, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import KeyhouseError, RevisionError, UniqueError
from keyhouse.keys.escape import Escape
from keyhouse.schema import (
    Count,
    Counter,
    Folded,
    Index,
    JobState,
    Log,
    LogState,
    Meta,
    Migration,
    Record,
    Schema,
    Space,
    Summary,
    Unique,
    fixed,
)
from keyhouse.store import Entry, Store, Transaction, append, fold, jobs, logs, migrate, prune, verify
from keyhouse.store.scan import Scan


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


def count_visit(state: Visits | None, event: Visit, found: Mapping[str, Any]) -> Folded:
    after = Visits(through="", count=1 if state is None else state.count + 1)
    return Folded(after, adds=[(MINUTES, event.minutes, {})])


async def one_more_copy(tx: Transaction, entry: Entry[Book]) -> None:
    await tx.put(BOOK, msgspec.structs.replace(entry.record, copies=entry.record.copies + 1))


BY_SHELF = Index("idx:shelf:{shelf}:{id}")
BY_TITLE = Unique("idx:title:{title}", value="id")
ON_SHELF = Summary("shelf:{shelf}", member="id", under="ids")
PER_SHELF = Count("count:{shelf}")
BOOK = Record(Book, "book:{id}", BY_SHELF, BY_TITLE, ON_SHELF, PER_SHELF)
BY_READER = Index("idx:reader:{reader}:{id}")
LOAN = Record(Loan, "loan:{id}", BY_READER, expiry=fixed(60))
MINUTES = Counter("minutes", name="minutes")
VISITS = Record(Visits, "visits:{door}", name="visits")
VISIT = Log(Visit, "visit:{door}:{at:ulid}", state=VISITS, fold=count_visit, deferred=True)
MORE = Migration(1, "One more copy of each.", BOOK, one_more_copy)
LIBRARY = Schema(
    "library", BOOK, LOAN, MINUTES, VISITS, VISIT, space=Space("a library"), meta=Meta(), migrations=(MORE,)
)


def book(id: str, title: str, shelf: str = "s", copies: int = 0) -> Book:
    return Book(id=id, title=title, shelf=shelf, copies=copies)


class Crash(Exception):
    """The process ends here."""


class Failing(MemoryEngine):
    """Ends the process instead of the commit of this number, counted from when it is set."""

    fails_at: int | None = None

    async def commit(self, space: str, batch: Batch) -> int | None:
        if self.fails_at is not None:
            self.fails_at -= 1
            if self.fails_at < 0:
                self.fails_at = None
                raise Crash
        return await super().commit(space, batch)


class Library:
    """A store on an engine that can be made to crash, and its clock."""

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
    """Two transactions wait here for each other, at their first try."""

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
    """Whichever commit is the last before a crash, records and their derived rows are there together."""
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
        totals.append([await library.store.total(PER_SHELF, shelf=name) for name in ("s1", "s2")])
    await library.store.delete(BOOK, id="b")
    totals.append([await library.store.total(PER_SHELF, shelf=name) for name in ("s1", "s2")])
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
    """Two transactions find that nobody has the title."""
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
    found += [str(await library.store.get(LOAN, id="a"))] if await library.store.get(LOAN, id="a") else []
    return found + await library.findings()


async def a_delimiter_in_a_field_stays_in_it(library: Library) -> list[str]:
    await library.store.put(BOOK, book("c", "t1", "a"))
    await library.store.put(BOOK, book("b", "t2", "a:b"))
    listed = [entry.values[0] async for entry in library.store.scan(BOOK, by=BY_SHELF, shelf="a")]
    return ([] if listed == ["c"] else [f"{listed}"]) + await library.findings()


async def a_migration_changes_each_record_once(library: Library) -> list[str]:
    """However often it is killed, and wherever."""
    for number in range(5):
        await library.store.put(BOOK, book(f"b{number}", f"t{number}"))
    for commit in (1, 2, 1, 3):
        await library.crash_at(commit, migrate(library.store))
        library.clock.advance(seconds=3_600)
    await migrate(library.store)
    copies = [entry.record.copies async for entry in library.store.scan(BOOK)]
    return [] if copies == [1] * 5 else [f"{copies}"]


async def an_event_counts_once(library: Library) -> list[str]:
    """Folded in several runs, some of which crash, and pruned before the last of them."""
    for number in range(6):
        await append(library.store, VISIT, Visit(10), door="d")
        await library.crash_at(number % 3, fold(library.store, VISIT, door="d"))
    await append(library.store, VISIT, Visit(10), door="d")
    async for _ in prune(library.store, VISIT, before=library.clock.now() + 1_000):
        pass
    await append(library.store, VISIT, Visit(10), door="d")
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
    return [entry.key async for entry in library.store.scan(BOOK, by=BY_SHELF)] + await library.findings()


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


# The bugs


def index_rows_outside_the_commit(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.commit

    async def commit(self: Transaction, *, batch_id: str | None = None) -> int | None:
        index = {key: put for key, put in self._writes.items() if key.startswith("idx:")}
        for key in index:
            del self._writes[key]
        revision = await whole(self, batch_id=batch_id)
        if revision is not None and index:
            later = Transaction(self._engine, self._space, self.binding)
            later._writes.update(index)
            await whole(later)
        return revision

    patch.setattr(Transaction, "commit", commit)


def derived_rows_before_the_record(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.commit

    async def commit(self: Transaction, *, batch_id: str | None = None) -> int | None:
        early = Transaction(self._engine, self._space, self.binding)
        early._writes.update({key: put for key, put in self._writes.items() if key.startswith(("idx:", "shelf:"))})
        if early._writes:
            await whole(early)
            for key in early._writes:
                self._writes.pop(key)
                self._rows.pop(key, None)
        return await whole(self, batch_id=batch_id)

    patch.setattr(Transaction, "commit", commit)


def old_index_row_kept(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction._derive

    def derive(self: Transaction, bound: Any, before: Any, after: Any, *, counts: bool = True) -> Any:
        merges = whole(self, bound, before, after, counts=counts)
        if after is not None:
            self._writes = {key: put for key, put in self._writes.items() if put is not None}
        return merges

    patch.setattr(Transaction, "_derive", derive)


def old_title_kept(patch: pytest.MonkeyPatch) -> None:
    """The unique row of the old value stays, so that nobody else can ever have it."""
    whole = Unique.merge

    def merge(self: Unique, key: str, row: Any, lost: Any, earned: Any) -> Any:
        return row if earned is None else whole(self, key, row, lost, earned)

    patch.setattr(Unique, "merge", merge)


def title_not_checked(patch: pytest.MonkeyPatch) -> None:
    def merge(self: Unique, key: str, row: Any, lost: Any, earned: Any) -> Any:
        return earned

    patch.setattr(Unique, "merge", merge)


def summary_not_emptied(patch: pytest.MonkeyPatch) -> None:
    whole = Summary.merge

    def merge(self: Summary, key: str, row: Any, lost: Any, earned: Any) -> Any:
        merged = whole(self, key, row, lost, earned)
        return row if merged is None else merged

    patch.setattr(Summary, "merge", merge)


def count_off_on_update(patch: pytest.MonkeyPatch) -> None:
    """Every put counts, as if it were the first."""
    whole = Transaction._derive

    def derive(self: Transaction, bound: Any, before: Any, after: Any, *, counts: bool = True) -> Any:
        merges = whole(self, bound, before, after, counts=counts)
        if before is not None and after is not None:
            for derived in bound.derived:
                for key in derived.rows(after.record, after.values) if derived.sort == "add" else ():
                    self._add(key, 1)
        return merges

    patch.setattr(Transaction, "_derive", derive)


def checks_dropped(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction._batch

    def batch(self: Transaction, batch_id: str | None) -> Batch:
        return msgspec.structs.replace(whole(self, batch_id), checks=())

    patch.setattr(Transaction, "_batch", batch)


def absence_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Only rows that were there are checked: a name that was free is taken by two."""
    whole = Transaction._batch

    def batch(self: Transaction, batch_id: str | None) -> Batch:
        made = whole(self, batch_id)
        return msgspec.structs.replace(made, checks=tuple(c for c in made.checks if c.revision is not None))

    patch.setattr(Transaction, "_batch", batch)


def expectation_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Transaction, "_check_expected", lambda self, key, before, expect: None)


def expiry_not_filtered_in_scans(patch: pytest.MonkeyPatch) -> None:
    async def scan(
        self: MemoryEngine, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False
    ) -> Page:
        keys = self._spaces[space].span(span) if space in self._spaces else []
        rows = [self._spaces[space].rows[key] for key in (reversed(keys) if reverse else keys)]
        return Page(rows[:limit], len(rows) > limit, self._revision)

    patch.setattr(MemoryEngine, "scan", scan)


def derived_rows_without_expiry(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction._derive

    def derive(self: Transaction, bound: Any, before: Any, after: Any, *, counts: bool = True) -> Any:
        forever = None if after is None else msgspec.structs.replace(after, expires=None)
        return whole(self, bound, before, forever, counts=counts)

    patch.setattr(Transaction, "_derive", derive)


def escape_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Escape, "escape", lambda self, text: text)


def checkpoint_outside_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A migration's step commits the records, and its place in a second transaction."""

    async def work(
        store: Store, name: str, owner: str, over: Any, step: Any, chunk_rows: int, tx: Transaction
    ) -> JobState:
        record = jobs._record(store)
        state = await tx.get(record, name=name)
        assert state is not None
        state = await jobs._advance(store, tx, state, over, step, chunk_rows)
        await tx.commit()
        tx.forget()
        later = Transaction(store.engine, store.space, store.binding)
        await later.put(record, state, name=name)
        await later.commit()
        return state

    patch.setattr(jobs, "_CHUNK_ROWS", 2)
    patch.setattr(jobs, "_work", work)


def migration_starts_over(patch: pytest.MonkeyPatch) -> None:
    """A resumed run does not go on where the last one was."""
    whole = jobs._claim

    async def claim(store: Store, name: str, owner: str, unless: Any, tx: Transaction) -> JobState | None:
        state = await whole(store, name, owner, unless, tx)
        assert state is not None
        state.cursor = ""
        await tx.put(jobs._record(store), state, name=name)
        return state

    patch.setattr(jobs, "_CHUNK_ROWS", 2)
    patch.setattr(jobs, "_claim", claim)


def through_not_moved(patch: pytest.MonkeyPatch) -> None:
    whole = logs._fold_chunk

    async def fold_chunk(store: Store, log: Any, stream: dict[str, Any], tx: Transaction) -> int:
        before = await tx.get(log.state, **stream)
        folded = await whole(store, log, stream, tx)
        after = await tx.get(log.state, **stream)
        if before is not None and after is not None and before.through:
            await tx.put(log.state, msgspec.structs.replace(after, through=before.through), **stream)
        return 0 if before is not None and before.through else folded

    patch.setattr(logs, "_fold_chunk", fold_chunk)


def pruned_before_it_was_folded(patch: pytest.MonkeyPatch) -> None:
    async def nothing(store: Store, log: Any, /, **stream: Any) -> int:
        return 0

    async def prune_all(store: Store, log: Any, stream: Any, cutoff: str, keep: int, tx: Transaction) -> int:
        bound = tx.binding.record(log)
        rows = await logs.rows_of(store, bound.template.span(stream), 50, bound.template.split)
        for row, _ in rows:
            tx.write(row.key, None)
        return len(rows)

    patch.setattr(logs, "fold", nothing)
    patch.setattr(logs, "_prune_chunk", prune_all)


def cursor_leaves_its_span(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scan, "_left", lambda self, span, key: Span(key + "\0"))


def cursor_repeats_its_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Scan, "_left", lambda self, span, key: Span(key, span.stop))


def space_missing_in_reads(patch: pytest.MonkeyPatch) -> None:
    """The engine looks in every space that has such a row."""

    async def scan(
        self: MemoryEngine, space: str, span: Span, *, limit: int, reverse: bool = False, keys_only: bool = False
    ) -> Page:
        rows = [each.rows[key] for each in self._spaces.values() for key in each.span(span)]
        return Page(rows[:limit], len(rows) > limit, self._revision)

    async def read(self: MemoryEngine, space: str, keys: Sequence[str]) -> list[Row | None]:
        return [next((each.rows[key] for each in self._spaces.values() if key in each.rows), None) for key in keys]

    patch.setattr(MemoryEngine, "scan", scan)
    patch.setattr(MemoryEngine, "read", read)


CAUGHT: tuple[tuple[Bug, Check], ...] = (
    (index_rows_outside_the_commit, all_or_nothing),
    (derived_rows_before_the_record, all_or_nothing),
    (old_index_row_kept, moves_leave_nothing_behind),
    (old_title_kept, moves_leave_nothing_behind),
    (title_not_checked, one_title_one_book),
    (summary_not_emptied, the_last_one_out_empties_the_shelf),
    (count_off_on_update, counts_follow_every_change),
    (checks_dropped, what_was_read_still_holds),
    (absence_not_checked, a_free_title_is_taken_once),
    (expectation_ignored, an_expectation_is_kept),
    (expiry_not_filtered_in_scans, expired_is_gone_everywhere),
    (derived_rows_without_expiry, expired_is_gone_everywhere),
    (escape_missing, a_delimiter_in_a_field_stays_in_it),
    (checkpoint_outside_the_commit, a_migration_changes_each_record_once),
    (migration_starts_over, a_migration_changes_each_record_once),
    (through_not_moved, an_event_counts_once),
    (pruned_before_it_was_folded, an_event_counts_once),
    (cursor_leaves_its_span, pages_cover_their_span_and_no_more),
    (cursor_repeats_its_row, pages_cover_their_span_and_no_more),
    (space_missing_in_reads, no_space_shows_in_another),
)


def wrong(check: Check) -> list[str]:
    """What a check finds wrong. An error that nobody expected is a finding too: the caller would have seen it."""

    async def run() -> list[str]:
        try:
            async with asyncio.timeout(20):
                return await check(Library())
        except KeyhouseError as error:
            return [repr(error)]

    return asyncio.run(run())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_a_bug_the_check_finds_nothing(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong(check) == []
    monkeypatch.setattr(jobs, "_CHUNK_ROWS", 2)  # nor in small steps
    assert wrong(check) == []


@pytest.mark.parametrize(("bug", "check"), CAUGHT, ids=[bug.__name__ for bug, _ in CAUGHT])
def test_a_planted_bug_is_caught(bug: Bug, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert wrong(check) != []
