"""Turns: whatever is asked in whatever order, the bounds hold, and lines take turns."""

import asyncio
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.scheduling.turns import Bounds, Line, Turns
from tests.support.polling import until

Work = tuple[str, int]


class Recorder:
    """Runs work until `end`, and notes the turn of the event loop of each start."""

    def __init__(self, **bounds: object) -> None:
        self.turns = Turns[Work](self._start, **bounds)  # type: ignore[arg-type]
        self.turn = 0
        self.started: list[tuple[int, Work]] = []
        self.running: list[Work] = []

    def ask(self, work: Work, size: int = 0) -> bool:
        line = self.turns.line(work[0])
        if self.turns.try_start(line, size):
            return self._start(line, work)
        return self.turns.wait(line, work, size)

    def end(self, at: int) -> None:
        name, _ = self.running.pop(at)
        self.turns.leave(self.turns.line(name))

    async def next_turn(self) -> None:
        self.turn += 1
        await asyncio.sleep(0)

    def _start(self, _: Line[Work], work: Work) -> bool:
        self.started.append((self.turn, work))
        self.running.append(work)
        return True


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from("abc"), st.integers(1, 6)),
        st.tuples(st.just("end"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("turn"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(STEPS, st.integers(1, 5), st.integers(1, 3), st.none() | st.integers(1, 4))
def test_the_bounds_and_the_order_of_each_line_hold(
    steps: list[tuple[str, str | int, int]], places: int, share: int, starts: int | None
) -> None:
    async def scenario() -> None:
        recorder = Recorder(places=places, share=share, starts=starts)
        asked: list[Work] = []
        for step, what, count in steps:
            if step == "ask":
                for _ in range(count):
                    asked.append((str(what), len(asked)))
                    assert recorder.ask(asked[-1])
            elif step == "end" and recorder.running:
                recorder.end(int(what) % len(recorder.running))
            else:
                await recorder.next_turn()
            running = Counter(name for name, _ in recorder.running)
            assert len(recorder.running) == recorder.turns.running <= places
            assert max(running.values(), default=0) <= share
        while recorder.turns.waiting:
            if recorder.running:
                recorder.end(0)
            await recorder.next_turn()
        for name in "abc":
            order = [work for _, work in recorder.started if work[0] == name]
            assert order == [work for work in asked if work[0] == name]
        if starts is not None:
            assert max(Counter(turn for turn, _ in recorder.started).values(), default=0) <= starts

    asyncio.run(scenario())


@given(st.lists(st.integers(1, 20), min_size=2, max_size=6))
def test_a_line_waits_for_one_piece_of_work_of_each_other_line(counts: list[int]) -> None:
    async def scenario() -> None:
        recorder = Recorder(places=1)
        recorder.ask(("first", 0))
        for at, count in enumerate(counts):
            for number in range(count):
                recorder.ask((f"{at}", number))
        while recorder.running:
            recorder.end(0)
        rounds = [number for _, (_, number) in recorder.started[1:]]
        assert rounds == sorted(rounds)

    asyncio.run(scenario())


def test_a_flood_is_rejected_before_the_few_of_others() -> None:
    async def scenario() -> None:
        bounds = Bounds(line=8, total=10, few=2, floods=6)
        recorder = Recorder(places=1, bounds=bounds)
        recorder.ask(("first", 0))
        assert [recorder.ask(("a", number)) for number in range(9)] == [True] * 6 + [False] * 3
        assert recorder.ask(("b", 0)) and recorder.ask(("b", 1)) and not recorder.ask(("b", 2))
        assert recorder.ask(("c", 0)) and recorder.ask(("d", 0)) and not recorder.ask(("e", 0))

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [0, 4])
def test_bytes_that_wait_are_bounded_and_counted_again_when_they_start(size: int) -> None:
    async def scenario() -> None:
        recorder = Recorder(places=1, bounds=Bounds(line_bytes=8, floods_bytes=12))
        recorder.ask(("first", 0))
        for _ in range(3):
            accepted = [recorder.ask((name, 0), size) for name in "aabbc"]
            assert accepted == ([True] * 3 + [False] * 2 if size else [True] * 5)
            while recorder.running:
                recorder.end(0)
            recorder.ask(("first", 0))

    asyncio.run(scenario())


def test_a_line_that_rests_leaves_its_place_to_others() -> None:
    async def scenario() -> None:
        recorder = Recorder(places=1, share=1)
        line = recorder.turns.line("a")
        recorder.turns.rest(line, 0.01)
        assert recorder.ask(("a", 0)) and recorder.ask(("b", 0))
        assert recorder.running == [("b", 0)]
        recorder.end(0)
        assert recorder.running == []
        await until(lambda: bool(recorder.running))
        assert recorder.running == [("a", 0)]

    asyncio.run(scenario())


def test_lines_without_work_are_dropped_and_those_with_work_stay() -> None:
    async def scenario() -> None:
        recorder = Recorder(lines_max=3)
        recorder.ask(("busy", 0))
        busy = recorder.turns.line("busy")
        for number in range(20):
            recorder.turns.line(f"idle {number}")
            assert len(recorder.turns) <= 4
        assert recorder.turns.line("busy") is busy

    asyncio.run(scenario())
