"""The promises of RELIABILITY hold in simulated runs, and each planted bug is found by one."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec
import pytest

from keyhouse.engine import Batch, CaughtUp, Change, Span
from keyhouse.service.background_operations import BackgroundOperations
from keyhouse.service.background_task import OperationTask
from keyhouse.service.usage import Quota
from keyhouse.store.jobs import job
from keyhouse.store.writes.row_buffer import RowBuffer
from keyhouse.testing.simulation import (
    FaultPlan,
    Network,
    SimulatedEngine,
    explore,
    simulate,
)
from keyhouse.testing.simulation.simulation import Scenario
from tests.simulation.jobs import jobs
from tests.simulation.library import library
from tests.simulation.operations import operations
from tests.simulation.service import service
from tests.simulation.shared_tasks import shared_tasks
from tests.simulation.usage import shared_usage, usage
from tests.sizes import size
from tests.store import test_planted_bugs as planted
from tests.support.seeds import new_seed

SEEDS_MAX = 500
"""A planted bug is found within so many runs."""

PLANS: dict[Scenario, FaultPlan] = {
    library: FaultPlan(seconds=8, kills=2, clock_jumps=2, jump_seconds=90),
    jobs: FaultPlan(seconds=20, kills=3, clock_jumps=2, jump_seconds=90),
    operations: FaultPlan(seconds=30, kills=3, partitions=4, down_seconds=20, clock_jumps=0),
    usage: FaultPlan(seconds=8, kills=0),
    shared_usage: FaultPlan(seconds=40, kills=4, clock_jumps=0),
    service: FaultPlan(seconds=8, kills=2, clock_jumps=0),
    shared_tasks: FaultPlan(
        seconds=300, kills=6, partitions=6, crashes=2, down_seconds=30, clock_jumps=0
    ),
}
NETWORKS: dict[Scenario, Network] = {
    each: Network(late_request=0) for each in (usage, shared_usage)
}
"""A write of unknown outcome counts until the next count of a quota: one that arrives later may
exceed it (`keyhouse.service.usage`)."""

RUNS: dict[Scenario, int] = {
    library: size(45, 900, 45_000),
    jobs: size(30, 600, 30_000),
    operations: size(15, 300, 15_000),
    usage: size(10, 200, 10_000),
    shared_usage: size(10, 200, 10_000),
    service: size(5, 100, 5_000),
    shared_tasks: size(15, 300, 15_000),
}


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "CHUNK_ROWS", 2)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", PLANS, ids=lambda each: each.__name__)
def test_every_promise_holds_in_each_run(scenario: Scenario) -> None:
    first = new_seed()
    seeds = range(first, first + RUNS[scenario])
    network = NETWORKS.get(scenario)
    assert explore(scenario, seeds, faults=PLANS[scenario], network=network) == RUNS[scenario]


# Bugs


def watch_skips_at_a_partition(patch: pytest.MonkeyPatch) -> None:
    whole = SimulatedEngine.watch

    async def watch(
        self: SimulatedEngine,
        space: str,
        span: Span,
        *,
        since: int | None = None,
        caught_up: CaughtUp | None = None,
    ) -> AsyncGenerator[Change, None]:
        async for change in whole(self, space, span, since=since, caught_up=caught_up):
            if change.revision % 10:
                yield change

    patch.setattr(SimulatedEngine, "watch", watch)


def retries_without_their_id(patch: pytest.MonkeyPatch) -> None:
    whole = RowBuffer.batch

    def batch(self: RowBuffer, batch_id: str | None = None) -> Batch:
        return msgspec.structs.replace(whole(self, batch_id), id=None)

    patch.setattr(RowBuffer, "batch", batch)


def a_run_is_lost_at_a_crash(patch: pytest.MonkeyPatch) -> None:
    whole = BackgroundOperations.claim

    async def claim(self: BackgroundOperations, store: Any, id: str, *rest: Any) -> Any:
        claimed = await whole(self, store, id, *rest)
        if claimed is not None and claimed.attempts > 1:
            await rest[-1].delete(self._records.run, id=id)
        return claimed

    patch.setattr(BackgroundOperations, "claim", claim)


def an_exclusive_claim_is_not_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    """The bug that the simulation found: an operation that was submitted after the others were
    listed, and claimed by another process, ran beside an older one."""

    async def nothing(self: BackgroundOperations, store: Any, claimed: Any) -> bool:
        return False

    patch.setattr(BackgroundOperations, "meets_another", nothing)


def a_lease_that_was_taken_is_used(patch: pytest.MonkeyPatch) -> None:
    async def held(self: OperationTask, tx: Any) -> Any:
        run = await tx.get(self._records.run, id=self.id)
        assert run is not None
        return run

    patch.setattr(OperationTask, "held", held)


def quota_is_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Quota, "check", lambda self, used, added: None)


BUGS: tuple[tuple[Callable[[pytest.MonkeyPatch], None], Scenario], ...] = (
    (planted.index_rows_outside_the_commit, library),
    (planted.derived_rows_before_the_record, library),
    (planted.old_index_row_kept, library),
    (planted.old_title_kept, library),
    (planted.title_not_checked, library),
    (planted.summary_not_emptied, library),
    (planted.count_off_on_update, library),
    (planted.checks_dropped, library),
    (planted.absence_not_checked, library),
    (planted.expectation_ignored, library),
    (planted.expiry_not_filtered_in_scans, library),
    (planted.derived_rows_without_expiry, library),
    (planted.escape_missing, library),
    (planted.checkpoint_outside_the_commit, jobs),
    (planted.migration_starts_over, jobs),
    (planted.through_not_moved, jobs),
    (planted.pruned_before_it_was_folded, jobs),
    (planted.cursor_leaves_its_span, library),
    (planted.cursor_repeats_its_row, library),
    (planted.space_missing_in_reads, library),
    (watch_skips_at_a_partition, library),
    (retries_without_their_id, library),
    (retries_without_their_id, service),
    (planted.old_index_row_kept, service),
    (a_run_is_lost_at_a_crash, operations),
    (an_exclusive_claim_is_not_looked_at_again, operations),
    (a_lease_that_was_taken_is_used, operations),
    (quota_is_not_checked, usage),
)


RARE = {an_exclusive_claim_is_not_looked_at_again}
"""Found after 100 to 300 runs."""


@pytest.mark.parametrize(
    ("bug", "scenario"),
    [
        pytest.param(
            bug,
            scenario,
            id=f"{bug.__name__}-{scenario.__name__}",
            marks=[pytest.mark.extra] if bug in RARE else [],
        )
        for bug, scenario in BUGS
    ],
)
def test_a_planted_bug_is_found(
    bug: Callable[[pytest.MonkeyPatch], None], scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug(monkeypatch)
    assert any(
        simulate(scenario, seed, faults=PLANS[scenario]).error is not None
        for seed in range(SEEDS_MAX)
    )
