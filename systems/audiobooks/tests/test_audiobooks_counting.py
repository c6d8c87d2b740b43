"""Counting events that arrive late: no start and no time counts twice, in whatever order they are
sent, and those of a device that had no network count once."""

from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from keyhouse_audiobooks.listening.playback import (
    PLAY_APART_SECONDS,
    SEEK_SLACK_SECONDS,
    Listening,
    count,
)
from keyhouse_audiobooks.listening.time_spans import SPANS_MAX, TimeSpan, is_near, joined, uncovered
from systems.audiobooks.tests.test_audiobooks_listening import Shelf, shelf
from systems.audiobooks.tests.test_audiobooks_playback import DURATIONS, event

__all__ = ["shelf"]

HOUR = 3_600
Step = tuple[str, str, int, float]
"""A device, the type of an event, its time and its position."""


def counted(steps: list[Step], state: Listening | None = None) -> tuple[int, int]:
    """Plays and listened seconds of a history of several devices."""
    plays = seconds = 0
    for device, kind, at, position in steps:
        found = count(state, given_by(device, kind, at, position), DURATIONS)
        state = msgspec.json.decode(msgspec.json.encode(found.state), type=Listening)
        plays, seconds = plays + found.plays, seconds + found.listen_seconds
    return plays, seconds


def given_by(device: str, kind: Any, at: int, position: float) -> Any:
    return msgspec.structs.replace(event(kind, at, position), device=device)


def heard(device: str, start: int, seconds: int, position: int = 0) -> list[Step]:
    """A device that plays for a while, and reports every 10 seconds."""
    times = range(10, seconds, 10)
    return [
        (device, "start", start, position),
        *((device, "progress", start + each, position + each) for each in times),
        (device, "pause", start + seconds, position + seconds),
    ]


def test_starts_of_two_times_in_turn_are_two_plays() -> None:
    now = 10 * HOUR
    starts: list[Step] = [("a", "start", now - HOUR * (each % 2), 0) for each in range(10)]
    assert counted(starts)[0] == 2


def test_a_start_between_two_plays_is_not_a_third() -> None:
    assert counted([("a", "start", at * 60, 0) for at in (0, 50, 25)])[0] == 2
    assert counted([("a", "start", at * 60, 0) for at in (0, 90, 45)])[0] == 3


def test_the_same_time_is_listened_to_once() -> None:
    rounds: list[Step] = [
        ("a", "progress", at, position) for at, position in ((0, 0), (100_000, 30))
    ]
    assert counted(rounds * 5)[1] <= 30 + SEEK_SLACK_SECONDS
    assert counted(heard("a", 0, 60) * 5) == (1, 60)
    assert counted(heard("a", 5 * HOUR, 60) + heard("a", 0, 60) * 5) == (2, 120)


def test_steps_within_one_second_count_no_more_than_the_slack() -> None:
    steps: list[Step] = [("a", "progress", 0, position) for position in range(0, 500, 5)]
    assert counted(steps)[1] == SEEK_SLACK_SECONDS
    again: list[Step] = [*steps, ("a", "pause", HOUR, 495), ("a", "start", 2 * HOUR, 0)]
    assert counted([*again, ("a", "progress", 2 * HOUR + 56, 60)])[1] == SEEK_SLACK_SECONDS + 60


def test_a_device_without_a_network_counts_once_beside_others() -> None:
    desk = heard("desk", 5 * HOUR, 120, position=300)
    phone = heard("phone", HOUR, 90)
    assert counted(phone + desk) == counted(desk + phone) == (2, 210)
    mixed = [desk[0], *(each for pair in zip(phone, desk[1:], strict=False) for each in pair)]
    rest = desk[len(phone) + 1 :] + phone[len(desk) - 1 :]
    assert counted(mixed + rest) == (2, 210)


def test_a_device_that_comes_back_continues_from_its_own_place() -> None:
    """The last event that waited is newer than those of the other device."""
    desk = heard("desk", HOUR, 60, position=300)
    phone = heard("phone", HOUR + 30, 90)
    assert counted(desk + phone)[1] == 60 + 60, "30 seconds of both at once count once"


def test_reports_that_overtake_each_other_count_in_full() -> None:
    steps = [("a", "start", 0, 0.0), ("a", "progress", 10, 10.0), ("a", "pause", 9, 11.0)]
    assert counted(steps)[1] == 11


def test_a_state_stored_without_counted_times_is_continued() -> None:
    state = count(None, given_by("a", "start", HOUR, 0), DURATIONS).state
    stored = msgspec.json.decode(msgspec.json.encode(state))
    del stored["counted"]
    old = msgspec.convert(stored, Listening)
    assert counted([("a", "start", HOUR + 60, 0)], old) == (0, 0)
    assert counted([("a", "progress", HOUR + 60, 60), ("a", "start", 2 * HOUR, 0)], old) == (1, 60)


def test_starts_that_are_forgotten_do_not_count_again() -> None:
    starts: list[Step] = [("a", "start", at * HOUR, 0) for at in range(3 * SPANS_MAX)]
    assert counted(starts * 3)[0] == counted(starts[::-1] * 3)[0] == len(starts)


TIMES = st.integers(0, 2 * HOUR)
STEPS = st.lists(
    st.tuples(
        st.sampled_from("abcdef"),
        st.sampled_from(["start", "progress", "progress", "pause", "complete"]),
        TIMES,
        st.integers(0, 500).map(float),
    ),
    max_size=80,
)


@given(STEPS)
def test_no_order_of_events_counts_more_than_the_time(steps: list[Step]) -> None:
    plays, seconds = counted(steps)
    assert plays <= 2 * HOUR // PLAY_APART_SECONDS + 1
    assert seconds <= 2 * 2 * HOUR + SEEK_SLACK_SECONDS
    frozen = [(device, kind, 0, position) for device, kind, _, position in steps]
    assert counted(frozen)[1] <= SEEK_SLACK_SECONDS and counted(frozen)[0] <= 1


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9))), st.integers(0, 60))
def test_spans_are_the_seconds_that_were_joined(added: list[TimeSpan], at: int) -> None:
    spans: list[TimeSpan] = []
    seconds: set[int] = set()
    for start, length in added:
        assert uncovered(spans, start, start + length) == len(
            set(range(start, start + length)) - seconds
        )
        spans = joined(spans, start, start + length, spans_max=100)
        seconds.update(range(start, start + length))
    assert all(last < first for (_, last), (first, _) in pairwise(spans))
    ends = {each for start, length in added for each in (start, start + length)}
    assert is_near(spans, at, 1) == (at in seconds or at in ends)
    few = joined(spans, 0, 0, spans_max=2)
    assert len(few) <= 2 and all(uncovered(few, each, each + 1) == 0 for each in seconds)


def test_seconds_ago_invents_neither_plays_nor_seconds(shelf: Shelf) -> None:
    shelf.service.clock.advance(seconds=10)
    for number in range(10):
        shelf.save(shelf.phone, 0, 1, event_type="start", seconds_ago=HOUR * (number % 2))
    assert shelf.statistics("/stats/me") == (2, 0)
    for _ in range(5):
        for ago, position in ((100_000, 0), (0, 30)):
            shelf.save(shelf.phone, 0, position, seconds_ago=ago)
    plays, seconds = shelf.statistics("/stats/me")
    assert plays == 2 and seconds <= 30 + SEEK_SLACK_SECONDS
    assert shelf.statistics(f"/stats/books/{shelf.book['id']}") == (plays, seconds)
