"""Playback: what counts as a play and as listening, and that each event is in the statistics
once."""

import asyncio
from typing import Any, Literal

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from keyhouse.clock import ManualClock
from keyhouse.engine import Engine
from keyhouse.errors import LinkError, RecordError
from keyhouse.schema import SECONDS
from keyhouse.store import Store, prune
from keyhouse_audiobooks.listening.playback import (
    Listening,
    count,
    current_place,
    moment,
    percent,
    status,
)
from keyhouse_audiobooks.records import Book, DurationMap, PlaybackEvent, Progress, SegmentSpan
from keyhouse_audiobooks.schema import (
    BOOK,
    BOOK_LISTEN_SECONDS,
    BOOK_PLAYS,
    DURATION_MAP,
    LISTENERS_OF_BOOK,
    PLAYBACK,
    PROGRESS,
    SCHEMAS,
    USER,
    USER_LISTEN_SECONDS,
    WATERMARK,
    WORK,
    WORK_LISTEN_SECONDS,
    WORK_PLAYS,
)
from tests.support.library_stubs import holds, rows, stub
from tests.support.store_driver import NOW, Drive, ulid

[SCHEMA] = SCHEMAS
USER_ID, OTHER_USER, BOOK_ID, WORK_ID, FIRST, SECOND = (ulid(number) for number in range(1, 7))

DURATIONS = DurationMap(
    segments=[
        SegmentSpan(id=FIRST, duration=600, active=True, offset_start=0),
        SegmentSpan(id=SECOND, duration=400, active=True, offset_start=600),
    ],
    total_duration=1_000,
)

Kind = Literal["progress", "start", "pause", "complete"]
Step = tuple[Kind, int, float] | tuple[Kind, int, float, float]
"""An event: its type, when (in seconds from the first), where in the first segment, and at which
speed."""


def event(
    kind: Kind, at: int, position: float, speed: float = 1.0, *, segment: str = FIRST
) -> PlaybackEvent:
    return PlaybackEvent(
        user_id=USER_ID,
        book_id=BOOK_ID,
        segment_id=segment,
        position_seconds=position,
        event_type=kind,
        play_speed=speed,
        created_at=SECONDS.format(NOW + at * 1_000),
    )


def counted(
    events: list[PlaybackEvent], durations: DurationMap | None = DURATIONS
) -> tuple[int, int]:
    """Plays and listened seconds of a whole history."""
    state: Listening | None = None
    plays = seconds = 0
    for each in events:
        found = count(state, each, durations)
        state, plays, seconds = found.state, plays + found.plays, seconds + found.listen_seconds
    return plays, seconds


@pytest.mark.parametrize(
    ("starts", "plays"),
    [
        ([0], 1),
        ([0, 60], 1),
        ([0, 30 * 60 - 1], 1),
        ([0, 30 * 60], 2),
        (
            [0, 20 * 60, 40 * 60],
            1,
        ),  # each within 30 minutes of a start, though not of the one that counted
        ([0, 20 * 60, 50 * 60], 2),
        ([0, 3_600, 7_200], 3),
    ],
)
def test_a_play_counts_on_a_start_with_no_start_in_the_last_30_minutes(
    starts: list[int], plays: int
) -> None:
    assert counted([event("start", at, 0) for at in starts])[0] == plays


def test_only_a_start_is_a_play() -> None:
    assert (
        counted([event("progress", 0, 0), event("pause", 10, 10), event("complete", 20, 20)])[0]
        == 0
    )


HISTORIES: dict[str, tuple[list[Step], int]] = {
    "listening to a stretch": ([("start", 0, 0), ("progress", 60, 60), ("pause", 90, 90)], 90),
    "a seek forward counts nothing": (
        [("start", 0, 0), ("progress", 60, 60), ("progress", 70, 500)],
        60,
    ),
    "and listening continues after it": (
        [("start", 0, 0), ("progress", 10, 300), ("progress", 40, 330), ("pause", 50, 340)],
        40,
    ),
    "a seek back counts nothing": (
        [("start", 0, 100), ("progress", 60, 160), ("progress", 70, 20)],
        60,
    ),
    "hearing it again counts again": (
        [("start", 0, 0), ("progress", 60, 60), ("start", 61, 0), ("pause", 121, 60)],
        120,
    ),
    "at double speed there is twice as much to hear": (
        [("start", 0, 0, 2.0), ("progress", 60, 120, 2.0)],
        120,
    ),
    "what is fast for the speed is a seek": ([("start", 0, 0, 1.0), ("progress", 60, 120, 1.0)], 0),
    "a change of speed is not a seek": ([("start", 0, 0, 1.0), ("progress", 60, 100, 2.0)], 100),
    "at half speed": ([("start", 0, 0, 0.5), ("progress", 60, 30, 0.5)], 30),
    "a report that comes a little early": ([("start", 0, 0), ("progress", 56, 60)], 60),
    "nothing is heard while it is paused": (
        [("start", 0, 0), ("pause", 60, 60), ("progress", 600, 500)],
        60,
    ),
    "nor before a start": ([("start", 0, 0), ("progress", 60, 60), ("start", 86_400, 500)], 60),
    "nor after the end": ([("start", 0, 0), ("complete", 60, 60), ("progress", 120, 120)], 60),
    "a first report without a start": ([("progress", 0, 100), ("progress", 30, 130)], 30),
    "time without progress": ([("start", 0, 50), ("progress", 600, 50)], 0),
    "parts of a second add up": (
        [("start", 0, 0), *(("progress", n, n * 0.5) for n in range(1, 11))],
        5,
    ),
    "a clock that steps back": ([("start", 100, 0), ("progress", 40, 60)], 0),
}


@pytest.mark.parametrize(("steps", "seconds"), HISTORIES.values(), ids=HISTORIES.keys())
def test_listened_seconds_are_forward_progress_without_seeks(
    steps: list[Step], seconds: int
) -> None:
    assert counted([event(*step) for step in steps])[1] == seconds


def test_progress_continues_across_segments() -> None:
    events = [event("start", 0, 590), event("progress", 30, 20, segment=SECOND)]
    assert counted(events)[1] == 30
    assert counted(events, None)[1] == 0, "two files of which nobody knows the order"
    assert counted([event("start", 0, 0), event("progress", 30, 30)], None)[1] == 30, (
        "one file needs no map"
    )


def test_a_position_in_a_segment_converts_to_one_in_the_book() -> None:
    assert moment(FIRST, 30, DURATIONS) == 30
    assert moment(SECOND, 30, DURATIONS) == 630
    assert moment(SECOND, 999, DURATIONS) == 1_000, "clamped to the segment"
    assert moment(ulid(99), 30, DURATIONS) is None is moment(FIRST, 30, None)


def test_percent_is_of_the_whole_book() -> None:
    assert percent(event("progress", 0, 300), DURATIONS) == 30.0
    assert percent(event("progress", 0, 333.3), DURATIONS) == 33.33
    assert percent(event("progress", 0, 400, segment=SECOND), DURATIONS) == 100.0
    assert percent(event("complete", 0, 10), None) == 100.0
    assert percent(event("progress", 0, 10), None) == 0.0
    assert percent(event("progress", 0, 10), DurationMap()) == 0.0
    assert percent(event("progress", 0, 10), None, before=42.0) == 42.0
    assert percent(event("progress", 0, 10, segment=WORK_ID), DURATIONS, before=42.0) == 42.0


def test_a_superseded_segment_leads_to_the_same_moment_of_the_active_one() -> None:
    merged = DurationMap(
        segments=[
            SegmentSpan(id=FIRST, duration=600, active=False, offset_start=0),
            SegmentSpan(id=SECOND, duration=400, active=False, offset_start=600),
            SegmentSpan(id=WORK_ID, duration=1_001, active=True, offset_start=0),
        ],
        total_duration=1_001,
    )
    assert current_place(SECOND, 10.5, merged) == (WORK_ID, 610.5)
    assert current_place(FIRST, 9_999, merged) == (WORK_ID, 600)
    assert current_place(WORK_ID, 7, merged) == (WORK_ID, 7)
    assert current_place(BOOK_ID, 7, merged) is None
    assert current_place(BOOK_ID, 7, None) == (BOOK_ID, 7), "no map: nothing is known to be wrong"


@pytest.mark.parametrize(
    ("complete", "seen"),
    [
        (0.0, "unstarted"),
        (0.01, "in_progress"),
        (94.99, "in_progress"),
        (95.0, "finished"),
        (100.0, "finished"),
    ],
)
def test_a_book_is_finished_at_95_percent_unless_set_manually(complete: float, seen: str) -> None:
    progress = Progress(
        user_id=USER_ID,
        book_id=BOOK_ID,
        segment_id=FIRST,
        position_seconds=0,
        percent_complete=complete,
    )
    assert status(progress) == seen
    for manual in ("unstarted", "in_progress", "finished", "abandoned"):
        assert status(replace(progress, manual_status=manual)) == manual
    assert status(replace(progress, manual_status=UNSET)) == seen


# The store


async def library(engine: Engine) -> Store:
    """Return a store with the listeners, the work, and a book that tests put again."""
    store = Store(SCHEMA, engine, "library-1")
    await stub(store, USER, USER_ID, OTHER_USER)
    await stub(store, WORK, WORK_ID)
    await stub(store, BOOK, BOOK_ID)
    return store


async def _play(store: Store, clock: ManualClock, *steps: Any) -> None:
    for kind, seconds, position in steps:
        clock.advance(seconds=seconds)
        made = replace(event(kind, 0, position), created_at=SECONDS.format(clock.now()))
        await store.append(PLAYBACK, made)


async def _statistics(store: Store) -> dict[str, int]:
    return {
        "book plays": await store.get(BOOK_PLAYS, book_id=BOOK_ID) or 0,
        "book seconds": await store.get(BOOK_LISTEN_SECONDS, book_id=BOOK_ID) or 0,
        "user seconds": await store.get(USER_LISTEN_SECONDS, user_id=USER_ID) or 0,
        "work plays": await store.get(WORK_PLAYS, work_id=WORK_ID) or 0,
        "work seconds": await store.get(WORK_LISTEN_SECONDS, work_id=WORK_ID) or 0,
    }


def test_an_event_updates_the_snapshot_and_the_statistics(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await store.put(DURATION_MAP, DURATIONS, book_id=BOOK_ID)
        await store.put(BOOK, Book(id=BOOK_ID, title="Dune", work_id=WORK_ID))
        await _play(store, clock, ("start", 0, 0), ("progress", 60, 60), ("pause", 30, 90))
        found = await rows(store)
        events = [key for key in found if key.startswith("playe:")]
        assert len(events) == 3
        progress = {
            "user_id": USER_ID,
            "book_id": BOOK_ID,
            "segment_id": FIRST,
            "position_seconds": 90,
            "percent_complete": 9.0,
            "updated_at": "2026-01-01T00:01:30Z",
            "version": 1,
        }
        others = {
            key: value
            for key, value in found.items()
            if key not in events and not key.startswith("playw:")
        }
        assert {
            key: value for key, value in others.items() if "b:" not in key and "title" not in key
        } == {
            f"playp:{USER_ID}:{BOOK_ID}": progress,
            f"idx:play:book:{BOOK_ID}:{USER_ID}": 1,
            f"idx:book:work:{WORK_ID}:{BOOK_ID}": 1,
            f"stats:book:plays:{BOOK_ID}": 1,
            f"stats:book:listen_seconds:{BOOK_ID}": 90,
            f"stats:user:listen_seconds:{USER_ID}": 90,
            f"stats:user:plays:{USER_ID}": 1,
            f"stats:work:plays:{WORK_ID}": 1,
            f"stats:work:listen_seconds:{WORK_ID}": 90,
        }
        assert found[f"playw:{USER_ID}:{BOOK_ID}"]["through"] == events[-1].rpartition(":")[2]
        await holds(store, found)

    drive(work)


def test_a_manual_status_survives_the_next_event(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await store.put(BOOK, Book(id=BOOK_ID, title="Dune"))
        await _play(store, clock, ("start", 0, 0))
        progress = await store.get(PROGRESS, user_id=USER_ID, book_id=BOOK_ID)
        assert progress is not None and progress.manual_status is UNSET
        await store.put(PROGRESS, replace(progress, manual_status="finished"))
        await _play(store, clock, ("progress", 60, 60))
        progress = await store.get(PROGRESS, user_id=USER_ID, book_id=BOOK_ID)
        assert (
            progress is not None
            and status(progress) == "finished"
            and progress.position_seconds == 60
        )

    drive(work)


def test_no_event_sets_progress_back_to_0_percent(drive: Drive) -> None:
    """An event of an unknown segment, or of a book without a duration map, made a half-heard book
    one that was never started; one of a superseded file moved the place back to that file."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)

        async def place() -> tuple[str | None, float, float]:
            progress = await store.get(PROGRESS, user_id=USER_ID, book_id=BOOK_ID)
            assert progress is not None
            return progress.segment_id, progress.position_seconds, progress.percent_complete

        await store.put(BOOK, Book(id=BOOK_ID, title="Dune"))
        await store.put(DURATION_MAP, DURATIONS, book_id=BOOK_ID)
        await _play(store, clock, ("start", 0, 0), ("progress", 300, 500))
        before = await _statistics(store)
        await store.append(PLAYBACK, event("progress", 400, 7, segment=WORK_ID))
        assert await place() == (FIRST, 500, 50.0) and await _statistics(store) == before
        await store.delete(DURATION_MAP, book_id=BOOK_ID)
        await store.append(PLAYBACK, event("progress", 500, 510))
        assert await place() == (FIRST, 510, 50.0)
        spans = [replace(span, active=False) for span in DURATIONS.segments]
        spans.append(SegmentSpan(id=OTHER_USER, duration=1_000, active=True, offset_start=0))
        merged = DurationMap(segments=spans, total_duration=1_000)
        await store.put(DURATION_MAP, merged, book_id=BOOK_ID)
        await store.append(PLAYBACK, event("progress", 600, 20, segment=SECOND))
        assert await place() == (OTHER_USER, 620, 62.0)

    drive(work)


def test_an_event_of_an_absent_book_is_rejected(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await store.delete(BOOK, id=BOOK_ID)
        with pytest.raises(LinkError):
            await _play(store, clock, ("start", 0, 0), ("progress", 60, 60))
        assert set((await _statistics(store)).values()) == {0}
        assert await store.get(PROGRESS, user_id=USER_ID, book_id=BOOK_ID) is None
        await holds(store, await rows(store))

    drive(work)


def test_an_event_without_a_time_is_rejected(drive: Drive) -> None:
    """`yesterday` was stored, and from then on every event of that listener and book failed."""

    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await store.put(BOOK, Book(id=BOOK_ID, title="Dune"))
        with pytest.raises(RecordError) as error:
            await store.append(PLAYBACK, replace(event("start", 0, 0), created_at="yesterday"))
        assert error.value.fields["member"] == "created_at"
        other = replace(event("start", 0, 0), created_at="2026-01-01T01:00:00+01:00")
        entry = await store.append(PLAYBACK, other)
        assert entry.record.created_at == "2026-01-01T00:00:00Z"
        [watermark] = [key for key in await rows(store) if key.startswith("playw:")]
        state = await store.get(WATERMARK, user_id=USER_ID, book_id=BOOK_ID)
        assert state is not None
        await store.put(WATERMARK, replace(state, at="yesterday"), user_id=USER_ID, book_id=BOOK_ID)
        await store.append(PLAYBACK, event("progress", 60, 60))
        assert (await rows(store))[watermark]["at"] == "2026-01-01T00:01:00Z"

    drive(work)


def test_a_book_that_was_never_opened_has_a_manual_status(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await store.put(
            PROGRESS, Progress(user_id=USER_ID, book_id=BOOK_ID, manual_status="abandoned")
        )
        progress = await store.get(PROGRESS, user_id=USER_ID, book_id=BOOK_ID)
        assert progress is not None and status(progress) == "abandoned"

    drive(work)


def test_a_books_listeners_are_found(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await store.put(BOOK, Book(id=BOOK_ID, title="Dune"))
        await _play(store, clock, ("start", 0, 0))
        await store.append(PLAYBACK, replace(event("start", 0, 5), user_id=OTHER_USER))
        scan = store.scan(PROGRESS, by=LISTENERS_OF_BOOK, book_id=BOOK_ID)
        assert [entry.record.user_id async for entry in scan] == [USER_ID, OTHER_USER]
        await store.delete(PROGRESS, user_id=USER_ID, book_id=BOOK_ID)
        assert await store.count(LISTENERS_OF_BOOK, book_id=BOOK_ID) == 1
        await holds(store, await rows(store))

    drive(work)


def test_pruning_deletes_events_and_keeps_the_statistics(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await store.put(BOOK, Book(id=BOOK_ID, title="Dune", work_id=WORK_ID))
        await _play(store, clock, ("start", 0, 0), ("progress", 60, 60), ("pause", 60, 120))
        before = await _statistics(store)
        assert before == {
            "book plays": 1,
            "book seconds": 120,
            "user seconds": 120,
            "work plays": 1,
            "work seconds": 120,
        }
        clock.advance(seconds=3_600)
        for _ in range(2):
            assert [gone async for gone in prune(store, PLAYBACK, before=clock.now(), keep=1)] in (
                [2],
                [],
            )
        assert await store.count(PLAYBACK) == 1
        assert await _statistics(store) == before
        await holds(store, await rows(store))
        await _play(store, clock, ("start", 0, 120), ("pause", 30, 150))
        after = await _statistics(store)
        assert after["book plays"] == 2 and after["work seconds"] == after["book seconds"] == 150

    drive(work)


def test_concurrent_events_are_counted_once_each(drive: Drive) -> None:
    async def work(engine: Engine, clock: ManualClock) -> None:
        store = await library(engine)
        await stub(store, USER, *(ulid(100 + number) for number in range(4)))
        events = [
            replace(event("start", 0, 0), user_id=ulid(100 + number % 4)) for number in range(24)
        ]
        await asyncio.gather(*(store.append(PLAYBACK, each) for each in events))
        assert await store.count(PLAYBACK) == 24
        assert await store.get(BOOK_PLAYS, book_id=BOOK_ID) == 4, (
            "one for each listener: the rest are within 30 minutes"
        )
        await holds(store, await rows(store))

    drive(work)
