"""The pace of a sweep: step sizes and pauses follow from measured times."""

from hypothesis import given
from hypothesis import strategies as st

from keyhouse.engines.pace import IDLE_SECONDS, PAUSE_SECONDS_MAX, Pace

BUSY_SECONDS = 0.001


def make_pace() -> Pace:
    return Pace(rows_max=2_000, rows_busy=32, busy_seconds=BUSY_SECONDS)


def test_steps_grow_while_nobody_else_writes() -> None:
    pace = make_pace()
    sizes = [pace.rows]
    for _ in range(4):
        assert pace.next(0.001, 0.002, 0) == 0
        sizes.append(pace.rows)
    assert sizes == [32, 128, 512, 2_000, 2_000]


def test_a_large_step_shrinks_when_it_is_slow() -> None:
    pace = make_pace()
    for _ in range(3):
        pace.next(0.001, 0.001, 0)
    pace.next(2 * IDLE_SECONDS, 2 * IDLE_SECONDS, 0)
    assert pace.rows == 1_000


def test_a_writer_makes_the_next_step_small_and_pauses_the_sweep() -> None:
    pace = make_pace()
    for _ in range(3):
        pace.next(0.001, 0.001, 0)
    assert pace.next(0.008, 0.010, 3) == 0.010
    assert pace.rows == 32


def test_a_step_has_twice_the_rows_that_many_writers_wrote() -> None:
    pace = make_pace()
    for _ in range(20):
        pace.next(0.000_1, 0.002, 100)
    assert pace.rows == 200


def test_a_slow_step_shrinks_to_half_the_usual_size_at_least() -> None:
    pace = make_pace()
    for _ in range(20):
        assert pace.next(1.0, 1.0, 1) == PAUSE_SECONDS_MAX
    assert pace.rows == 16


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10), st.integers(0, 10_000))))
def test_sizes_and_pauses_stay_within_their_limits(steps: list[tuple[float, float, int]]) -> None:
    pace = make_pace()
    for work, waited, others in steps:
        pause = pace.next(work, work + waited, others)
        assert 16 <= pace.rows <= 2_000
        assert 0 <= pause <= PAUSE_SECONDS_MAX
        assert not (pause and not others)


def test_a_large_step_that_other_writes_met_is_followed_by_one_within_the_budget() -> None:
    pace = make_pace()
    for _ in range(3):
        pace.next(0.001, 0.001, 0)
    assert pace.rows == 2_000
    pace.next(0.040, 0.040, 1_000)
    assert pace.rows == 2_000 * 0.040 / 8 / 0.040
    pace.next(0.004, 0.004, 1_000)
    assert pace.rows == 62
