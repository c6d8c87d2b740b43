"""The fold rules of events: one test for each rule, and one result for any order of any events."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from keyhouse.schema import MILLISECONDS
from keyhouse_history.fold import NOTHING, AssetEntries, ViewingEvent, fold
from keyhouse_history.schema import HistoryEntry, moment_of


def event(at: int, state: Any = "IN_PROGRESS", progress: int = 10, **others: Any) -> ViewingEvent:
    return ViewingEvent(
        asset_id="1981",
        asset_type=others.pop("asset_type", "tv-episode"),
        total_time=others.pop("total_time", 100),
        progress=progress,
        at=at,
        state=state,
        **others,
    )


def after(*events: ViewingEvent) -> AssetEntries:
    entries = NOTHING
    for each in events:
        entries = fold(entries, each)
    return entries


def times(entry: HistoryEntry | None) -> list[int]:
    assert entry is not None and entry.m is not msgspec.UNSET
    return [MILLISECONDS.parse(text) for text in entry.m.timestamps]


def test_completing_removes_the_entry_in_progress_and_keeps_the_time() -> None:
    entries = after(event(1), event(2, "COMPLETED", 99))
    assert entries.in_progress is None
    assert times(entries.completed) == [2]


def test_watching_again_keeps_the_completed_entry() -> None:
    entries = after(event(1, "COMPLETED"), event(2))
    assert entries.in_progress is not None and entries.completed is not None


def test_an_event_older_than_the_entry_of_its_state_changes_nothing() -> None:
    before = after(event(5))
    assert fold(before, event(4, progress=90, ext={"a": 1})) is before


def test_progress_not_newer_than_the_completion_is_ignored() -> None:
    before = after(event(5, "COMPLETED"))
    assert fold(before, event(5, progress=100)) is before
    assert fold(before, event(4)) is before


def test_a_late_completion_adds_its_time_once_and_nothing_else() -> None:
    before = after(event(5, "COMPLETED", 96, ext={"a": 1}))
    late = event(3, "COMPLETED", 100, ext={"a": 2})
    entries = fold(before, late)
    assert times(entries.completed) == [3, 5]
    assert entries.completed is not None and entries.completed.ext == {"a": 1}
    assert entries.completed.attr == (before.completed and before.completed.attr)
    assert fold(entries, late) is entries


def test_a_late_completion_leaves_later_progress() -> None:
    entries = after(event(5, ext={"a": 1}), event(3, "COMPLETED", ext={"a": 2}))
    assert entries.in_progress is not None and entries.completed is not None
    assert entries.in_progress.ext == entries.completed.ext == {"a": 1}
    assert fold(entries, event(5, "COMPLETED")).in_progress is None


def test_the_same_event_twice_changes_nothing() -> None:
    for each in (event(1, ext={"a": 1}), event(1), event(1, "COMPLETED")):
        before = after(each)
        assert fold(before, each) is before


def test_of_one_time_completed_wins_then_the_larger_progress() -> None:
    entries = after(event(1, progress=20), event(1, "COMPLETED", 5))
    assert entries.in_progress is None
    larger = after(event(1, progress=20), event(1, progress=30), event(1, progress=10))
    assert larger.in_progress is not None and larger.in_progress.attr.progress == 30


def test_both_entries_share_the_ext_of_the_newest_event() -> None:
    entries = after(event(1, "COMPLETED", ext={"show": "1"}), event(2, ext={"show": "2"}))
    assert entries.in_progress is not None and entries.completed is not None
    assert entries.in_progress.ext == entries.completed.ext == {"show": "2"}


def test_ext_left_out_is_kept_and_an_empty_one_clears() -> None:
    entries = after(event(1, ext={"a": 1}), event(2))
    assert entries.ext == {"a": 1}
    assert fold(entries, event(3, "COMPLETED")).ext == {"a": 1}
    assert fold(entries, event(3, ext={})).ext == {}


def test_the_newest_hundred_times_of_completion_are_kept() -> None:
    entries = after(*(event(at, "COMPLETED") for at in range(150)))
    assert times(entries.completed) == list(range(50, 150))
    assert fold(entries, event(3, "COMPLETED")) is entries


EXTS = st.sampled_from([{}, {"sport": "cricket"}, {"sport": "golf", "x": 1}, {"x": 2}])


def events(ext: st.SearchStrategy[Any]) -> st.SearchStrategy[list[ViewingEvent]]:
    one = st.builds(
        event,
        st.integers(0, 6),
        st.sampled_from(["IN_PROGRESS", "COMPLETED"]),
        st.integers(-1, 5),
        total_time=st.sampled_from([0, 4, 5]),
        asset_type=st.sampled_from(["movie", "tv-episode"]),
        ext=ext,
    )
    return st.lists(one, min_size=1, max_size=12)


@st.composite
def reordered(draw: st.DrawFn, ext: st.SearchStrategy[Any]) -> tuple[list[Any], list[Any]]:
    """Two orders of the same events, the second one with repeats."""
    drawn = draw(events(ext))
    repeats = draw(st.lists(st.sampled_from(drawn), max_size=4))
    return drawn, draw(st.permutations([*drawn, *repeats]))


@given(reordered(EXTS))
def test_any_order_of_any_events_gives_one_result(two: tuple[list[Any], list[Any]]) -> None:
    assert after(*two[0]) == after(*two[1])


@given(reordered(st.none() | EXTS))
def test_without_some_exts_all_but_the_ext_has_one_result(two: tuple[list[Any], list[Any]]) -> None:
    first, second = (without_ext(after(*order)) for order in two)
    assert first == second


@given(events(EXTS))
def test_the_result_follows_from_the_set_of_events(given_events: list[ViewingEvent]) -> None:
    """The model: the newest events of each state, found without folding."""
    entries = after(*given_events)
    completions = [each for each in given_events if each.state == "COMPLETED"]
    last = max((each.at for each in completions), default=-1)
    later = [e for e in given_events if e.state == "IN_PROGRESS" and e.at > last]
    assert (entries.completed is None) == (not completions)
    assert (entries.in_progress is None) == (not later)
    if completions:
        assert times(entries.completed) == sorted({each.at for each in completions})
        assert entries.completed is not None and moment_of(entries.completed) == last
    if later:
        assert entries.in_progress is not None
        assert moment_of(entries.in_progress) == max(each.at for each in later)
    if entries.in_progress and entries.completed:
        assert entries.in_progress.ext == entries.completed.ext


def without_ext(entries: AssetEntries) -> list[Any]:
    return [
        entry and msgspec.structs.replace(entry, ext={})
        for entry in (entries.in_progress, entries.completed)
    ]
