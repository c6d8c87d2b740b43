"""Likely bugs of a store, planted one at a time: each is detected by its own check.

A check is a short scenario that returns problems: none without the bug, some with it. This shows
that the check works.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from keyhouse.engine import Batch, Page, Row, Span
from keyhouse.engines.memory import MemoryEngine
from keyhouse.errors import KeyhouseError
from keyhouse.keys.escape import Escape
from keyhouse.schema import (
    BoundSummary,
    BoundUnique,
    JobState,
)
from keyhouse.store import ANY, Store, Transaction
from keyhouse.store.jobs import job, logs
from keyhouse.store.jobs.lease import JobLease
from keyhouse.store.writes import write_plan
from keyhouse.store.writes.row_buffer import RowBuffer
from tests.store.support.planted_bug_checks import (
    CHECKS,
    Bug,
    Check,
    Library,
    a_delimiter_in_a_field_stays_in_it,
    a_free_title_is_taken_once,
    a_migration_changes_each_record_once,
    all_or_nothing,
    an_event_counts_once,
    an_expectation_is_kept,
    counts_follow_every_change,
    expired_is_gone_everywhere,
    moves_leave_nothing_behind,
    no_space_shows_in_another,
    one_title_one_book,
    pages_cover_their_span_and_no_more,
    the_last_one_out_empties_the_shelf,
    what_was_read_still_holds,
)


def index_rows_outside_the_commit(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.commit

    async def commit(self: Transaction, *, batch_id: str | None = None) -> int | None:
        index = {key: put for key, put in self.rows.writes.items() if key.startswith("idx:")}
        for key in index:
            del self.rows.writes[key]
        revision = await whole(self, batch_id=batch_id)
        if revision is not None and index:
            later = Transaction(self.source)
            later.rows.writes.update(index)
            await whole(later)
        return revision

    patch.setattr(Transaction, "commit", commit)


def derived_rows_before_the_record(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.commit

    async def commit(self: Transaction, *, batch_id: str | None = None) -> int | None:
        early = Transaction(self.source)
        early.rows.writes.update(
            {
                key: put
                for key, put in self.rows.writes.items()
                if key.startswith(("idx:", "shelf:"))
            }
        )
        if early.rows.writes:
            await whole(early)
            for key in early.rows.writes:
                self.rows.writes.pop(key)
                self.rows.stored.pop(key, None)
        return await whole(self, batch_id=batch_id)

    patch.setattr(Transaction, "commit", commit)


def old_index_row_kept(patch: pytest.MonkeyPatch) -> None:
    whole = write_plan.owned_changes

    def owned_changes(bound: Any, before: Any, after: Any) -> Any:
        return {
            key: put
            for key, put in whole(bound, before, after).items()
            if put is not None or after is None
        }

    patch.setattr(write_plan, "owned_changes", owned_changes)


def old_title_kept(patch: pytest.MonkeyPatch) -> None:
    """The unique row of the old value stays, so the value is never free again."""
    whole = BoundUnique.merge

    def merge(self: BoundUnique, key: str, row: Any, removed: Any, added: Any) -> Any:
        return row if added is None else whole(self, key, row, removed, added)

    patch.setattr(BoundUnique, "merge", merge)


def title_not_checked(patch: pytest.MonkeyPatch) -> None:
    def merge(self: BoundUnique, key: str, row: Any, removed: Any, added: Any) -> Any:
        return added

    patch.setattr(BoundUnique, "merge", merge)


def summary_not_emptied(patch: pytest.MonkeyPatch) -> None:
    whole = BoundSummary.merge

    def merge(self: BoundSummary, key: str, row: Any, removed: Any, added: Any) -> Any:
        merged = whole(self, key, row, removed, added)
        return row if merged is None else merged

    patch.setattr(BoundSummary, "merge", merge)


def count_off_on_update(patch: pytest.MonkeyPatch) -> None:
    """Every put is counted as a new record."""
    whole = write_plan.shared_changes

    def shared_changes(bound: Any, before: Any, after: Any) -> Any:
        counts, changes = whole(bound, before, after)
        if before is not None and after is not None:
            for derived in bound.derived:
                for key in (
                    derived.rows(after.record, after.values) if derived.strategy == "add" else ()
                ):
                    counts[key] = counts.get(key, 0) + 1
        return counts, changes

    patch.setattr(write_plan, "shared_changes", shared_changes)


def checks_dropped(patch: pytest.MonkeyPatch) -> None:
    whole = RowBuffer.batch

    def batch(self: RowBuffer, batch_id: str | None = None) -> Batch:
        return msgspec.structs.replace(whole(self, batch_id), checks=())

    patch.setattr(RowBuffer, "batch", batch)


def absence_not_checked(patch: pytest.MonkeyPatch) -> None:
    """Only existing rows are checked: two records can claim a free name."""
    whole = RowBuffer.batch

    def batch(self: RowBuffer, batch_id: str | None = None) -> Batch:
        made = whole(self, batch_id)
        return msgspec.structs.replace(
            made, checks=tuple(c for c in made.checks if c.revision is not None)
        )

    patch.setattr(RowBuffer, "batch", batch)


def expectation_ignored(patch: pytest.MonkeyPatch) -> None:
    whole = Transaction.apply

    async def apply(self: Transaction, plan: Any, expect: object = ANY) -> Any:
        return await whole(self, plan)

    patch.setattr(Transaction, "apply", apply)


def expiry_not_filtered_in_scans(patch: pytest.MonkeyPatch) -> None:
    async def scan(
        self: MemoryEngine,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        keys = self._spaces[space].span(span) if space in self._spaces else []
        rows = [self._spaces[space].rows[key] for key in (reversed(keys) if reverse else keys)]
        return Page(rows[:limit], len(rows) > limit, self._revision)

    patch.setattr(MemoryEngine, "scan", scan)


def derived_rows_without_expiry(patch: pytest.MonkeyPatch) -> None:
    whole = write_plan.owned_changes

    def owned_changes(bound: Any, before: Any, after: Any) -> Any:
        return whole(
            bound, before, None if after is None else msgspec.structs.replace(after, expires=None)
        )

    patch.setattr(write_plan, "owned_changes", owned_changes)


def escape_missing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Escape, "escape", lambda self, text: text)


def checkpoint_outside_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A migration's step commits its checkpoint in a second transaction."""

    async def renew(self: JobLease, tx: Transaction, state: JobState) -> None:
        await tx.commit()
        tx.discard()
        later = Transaction(tx.source)
        await later.put(self.job, state, name=self.name)
        await later.commit()

    patch.setattr(job, "CHUNK_ROWS", 2)
    patch.setattr(JobLease, "renew", renew)


def migration_starts_over(patch: pytest.MonkeyPatch) -> None:
    """A resumed run does not start at the last checkpoint."""
    whole = JobLease.claim

    async def claim(self: JobLease, tx: Transaction) -> JobState | None:
        state = await whole(self, tx)
        assert state is not None
        state.cursor = ""
        await tx.put(self.job, state, name=self.name)
        return state

    patch.setattr(job, "CHUNK_ROWS", 2)
    patch.setattr(JobLease, "claim", claim)


def through_not_moved(patch: pytest.MonkeyPatch) -> None:
    whole = logs.fold_chunk

    async def fold_chunk(
        store: Store, log: Any, stream: dict[str, Any], most: int, tx: Transaction
    ) -> int:
        before = await tx.get(log.state, **stream)
        folded = await whole(store, log, stream, most, tx)
        after = await tx.get(log.state, **stream)
        if before is not None and after is not None and before.through:
            await tx.put(
                log.state, msgspec.structs.replace(after, through=before.through), **stream
            )
        return 0 if before is not None and before.through else folded

    patch.setattr(logs, "fold_chunk", fold_chunk)


def pruned_before_it_was_folded(patch: pytest.MonkeyPatch) -> None:
    async def nothing(store: Store, log: Any, /, **stream: Any) -> int:
        return 0

    async def prune_all(
        store: Store, log: Any, stream: Any, cutoff: str, keep: int, most: int, tx: Transaction
    ) -> int:
        bound = tx.binding.record(log)
        rows = await logs.rows_of(store, bound.template.span(stream), most, bound.template.split)
        for row, _ in rows:
            tx.write(row.key, None)
        return len(rows)

    patch.setattr(logs, "fold", nothing)
    patch.setattr(logs, "prune_chunk", prune_all)


def cursor_leaves_its_span(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Span, "rest", lambda span, key, *, reverse: Span(key + "\0"))


def cursor_repeats_its_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Span, "rest", lambda span, key, *, reverse: Span(key, span.stop))


def space_missing_in_reads(patch: pytest.MonkeyPatch) -> None:
    """The engine reads the row in every space."""

    async def scan(
        self: MemoryEngine,
        space: str,
        span: Span,
        *,
        limit: int,
        reverse: bool = False,
        keys_only: bool = False,
        bytes_max: int | None = None,
    ) -> Page:
        rows = [each.rows[key] for each in self._spaces.values() for key in each.span(span)]
        return Page(rows[:limit], len(rows) > limit, self._revision)

    async def read(
        self: MemoryEngine, space: str, keys: Sequence[str], *, bytes_max: int | None = None
    ) -> list[Row | None]:
        return [
            next((each.rows[key] for each in self._spaces.values() if key in each.rows), None)
            for key in keys
        ]

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
    """Return the problems that a check finds. An unexpected error is a problem too."""

    async def run() -> list[str]:
        try:
            async with asyncio.timeout(20):
                return await check(Library())
        except KeyhouseError as error:
            return [repr(error)]

    return asyncio.run(run())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_without_a_bug_the_check_finds_nothing(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert wrong(check) == []
    monkeypatch.setattr(job, "CHUNK_ROWS", 2)  # nor in small steps
    assert wrong(check) == []


@pytest.mark.parametrize(("bug", "check"), CAUGHT, ids=[bug.__name__ for bug, _ in CAUGHT])
def test_a_planted_bug_is_caught(bug: Bug, check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    assert wrong(check) != []
