"""The commit queue with worker tasks: lanes, groups, isolation, cancellation, draining."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from keyhouse.engine import Batch
from keyhouse.engines.commit_queue import PendingCommit
from keyhouse.engines.task_commit_queue import LaneGroup, LanePool, TaskCommitQueue
from keyhouse.errors import ClosedError, EngineError, KeyhouseError, UnavailableError
from tests.support.polling import loop_turns

GROUP_MAX = 8


class Group(LaneGroup[PendingCommit]):
    WRITES_MAX = GROUP_MAX
    ROWS_MAX = 100

    __slots__ = ()


class Queue(TaskCommitQueue[PendingCommit]):
    """Records the batch ids of each group. `hook` runs first, and may raise or put writes back."""

    def __init__(self, *pools: LanePool) -> None:
        super().__init__(*(pools or (LanePool(workers_max=1),)))
        self.groups: list[list[str]] = []
        self.hook: Callable[[LaneGroup[PendingCommit]], None] = lambda group: None
        self.in_flight = 0
        self.in_flight_max = 0

    async def commit(self, space: str, batch_id: str, *, rows: int = 1) -> int | None:
        return await self.submit(PendingCommit(space, Batch(id=batch_id), rows=rows), space)

    async def until_in_flight(self) -> None:
        while not self.in_flight:
            await asyncio.sleep(0)

    def _closed_error(self) -> KeyhouseError:
        return ClosedError("closed")

    @property
    def is_empty(self) -> bool:
        return not self._lanes and not self.busy

    def put_back(self, group: LaneGroup[PendingCommit], writes: Sequence[PendingCommit]) -> None:
        self._put_back(group, writes)

    def _new_group(self, pool: LanePool) -> Group:
        return Group(pool)

    async def _apply(self, group: LaneGroup[PendingCommit]) -> None:
        self.groups.append([write.batch.id or "" for write in group.writes])
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await loop_turns(3)
            self.hook(group)
        finally:
            self.in_flight -= 1
        for number, write in enumerate(group.writes):
            write.result = number


def run(scenario: Any) -> None:
    async def limited() -> None:
        async with asyncio.timeout(10):
            await scenario()

    asyncio.run(limited())


def test_writes_that_arrive_while_a_group_is_in_flight_share_the_next() -> None:
    async def scenario() -> None:
        queue = Queue()
        first = asyncio.ensure_future(queue.commit("s", "a"))
        await queue.until_in_flight()
        await asyncio.gather(first, *(queue.commit("s", each) for each in "bcd"))
        assert queue.groups == [["a"], ["b", "c", "d"]]

    run(scenario)


def test_a_group_is_limited_by_writes_and_rows() -> None:
    async def scenario() -> None:
        queue = Queue()
        await asyncio.gather(*(queue.commit("s", f"{n}") for n in range(GROUP_MAX + 1)))
        await asyncio.gather(*(queue.commit("s", f"{n}", rows=40) for n in range(3)))
        await asyncio.gather(queue.commit("s", "huge", rows=1_000), queue.commit("s", "small"))
        assert [len(group) for group in queue.groups] == [GROUP_MAX, 1, 2, 1, 1, 1]

    run(scenario)


def test_lanes_take_turns_within_a_group() -> None:
    async def scenario() -> None:
        queue = Queue()
        writes = [queue.commit("long", f"l{n}") for n in range(20)]
        writes += [queue.commit(space, space) for space in "xy"]
        await asyncio.gather(*writes)
        assert queue.groups[0][:5] == ["l0", "x", "y", "l1", "l2"]
        assert [each for group in queue.groups for each in group if each.startswith("l")] == [
            f"l{n}" for n in range(20)
        ]

    run(scenario)


def test_a_lane_is_in_one_group_at_a_time_and_other_lanes_are_not_delayed() -> None:
    async def scenario() -> None:
        queue = Queue(LanePool(lanes_max=1))
        await asyncio.gather(*(queue.commit(f"s{n % 4}", f"{n % 4}.{n}") for n in range(64)))
        assert queue.in_flight_max == 4
        for lane in range(4):
            order = [each for group in queue.groups for each in group if each[0] == str(lane)]
            assert order == [f"{lane}.{n}" for n in range(lane, 64, 4)]

    run(scenario)


def test_an_error_that_one_write_causes_fails_only_that_write() -> None:
    async def scenario() -> None:
        queue = Queue()

        def reject(group: LaneGroup[PendingCommit]) -> None:
            if any(write.batch.id == "c" for write in group.writes):
                raise EngineError("rejected")

        queue.hook = reject
        outcomes = await asyncio.gather(
            *(queue.commit("s", each) for each in "abcd"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [int, int, EngineError, int]
        assert queue.groups == [["a", "b", "c", "d"], ["a"], ["b"], ["c"], ["d"]]

    run(scenario)


@pytest.mark.parametrize("error", [UnavailableError("down"), ZeroDivisionError("unforeseen")])
def test_a_shared_or_unexpected_failure_fails_the_group_once(error: Exception) -> None:
    async def scenario() -> None:
        queue = Queue()

        def fail(group: LaneGroup[PendingCommit]) -> None:
            raise error

        queue.hook = fail
        outcomes = await asyncio.gather(
            *(queue.commit("s", each) for each in "abc"), return_exceptions=True
        )
        assert all(isinstance(outcome, EngineError) for outcome in outcomes)
        assert len({id(outcome) for outcome in outcomes}) == 3
        assert queue.groups == [["a", "b", "c"]]
        queue.hook = lambda group: None
        assert await queue.commit("s", "d") == 0

    run(scenario)


def test_writes_that_are_put_back_keep_their_order() -> None:
    async def scenario() -> None:
        queue = Queue()

        def halve(group: LaneGroup[PendingCommit]) -> None:
            if len(group.writes) > 1:
                queue.put_back(group, group.writes[len(group.writes) // 2 :])

        queue.hook = halve
        await asyncio.gather(*(queue.commit("s", each) for each in "abcd"))
        assert queue.groups == [["a", "b", "c", "d"], ["c", "d"], ["d"]]

    run(scenario)


def test_a_cancelled_caller_withdraws_a_queued_write() -> None:
    async def scenario() -> None:
        queue = Queue()
        first = asyncio.ensure_future(queue.commit("s", "a"))
        await queue.until_in_flight()
        withdrawn = [asyncio.ensure_future(queue.commit(space, "w")) for space in "st"]
        await asyncio.sleep(0)
        for task in withdrawn:
            task.cancel()
        await asyncio.gather(first, queue.commit("s", "b"))
        assert queue.groups == [["a"], ["b"]]
        assert queue.is_empty

    run(scenario)


def test_a_lane_of_withdrawn_writes_does_not_strand_the_next_lane() -> None:
    async def scenario() -> None:
        queue = Queue(LanePool(workers_max=1, lanes_max=1))
        first = asyncio.ensure_future(queue.commit("a", "a"))
        await queue.until_in_flight()
        withdrawn = asyncio.ensure_future(queue.commit("b", "b"))
        waiting = asyncio.ensure_future(queue.commit("c", "c"))
        await asyncio.sleep(0)
        withdrawn.cancel()
        await asyncio.gather(first, waiting)
        assert queue.groups == [["a"], ["c"]]

    run(scenario)


def test_stop_drains_accepted_writes_and_rejects_new_ones() -> None:
    async def scenario() -> None:
        queue = Queue()
        accepted = [asyncio.ensure_future(queue.commit("s", f"{n}")) for n in range(20)]
        await asyncio.sleep(0)
        await queue.stop()
        assert all(task.done() for task in accepted)
        with pytest.raises(ClosedError):
            await queue.commit("s", "late")
        await asyncio.gather(*accepted)

    run(scenario)
