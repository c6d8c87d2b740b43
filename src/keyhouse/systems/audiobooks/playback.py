"""Counting playback: plays, listened seconds and progress of one event. Pure; it knows no keys.

A play counts on `start`, unless the start before it was less than 30 minutes away. Events count in
the order in which they arrive, each at the time at which it happened: those of a device that had no
network arrive later, and may be older than what another device has sent meanwhile.

Listened seconds are seconds of the book, from forward progress between two events during playback.
A step larger than the elapsed time allows at the playback speed (with some slack, for late reports)
is a seek and counts nothing; so does a step back. Time before a `start`, or after a `pause` or
`complete`, does not count.

Positions lead forward only as long as they are known. An event of a segment that a merge has
superseded counts at the same moment of the segment that plays there now (`current_place`). An event
of an unknown segment, or of a book without a duration map, keeps the percentage that was reached.
"""

from typing import Final, NamedTuple

from msgspec import UNSET, Struct, UnsetType

from keyhouse.errors import DocumentError
from keyhouse.schema import SECONDS, LogState
from keyhouse.systems.audiobooks.records import (
    DurationMap,
    PlaybackEvent,
    Progress,
    SegmentSpan,
    Status,
)

__all__ = [
    "FINISHED_PERCENT",
    "MERGE_TOLERANCE",
    "PLAY_APART_SECONDS",
    "SEEK_SLACK_SECONDS",
    "Counted",
    "Listening",
    "Place",
    "count",
    "current_place",
    "moment",
    "percent",
    "status",
    "unheard",
]

PLAY_APART_SECONDS: Final = 30 * 60
SEEK_SLACK_SECONDS: Final = 5
FINISHED_PERCENT: Final = 95
MERGE_TOLERANCE: Final = 0.02
"""Share by which the duration of a merged file may differ from that of its segments."""


class Listening(LogState, kw_only=True):
    """The state of counting for one listener and book. `moment` is the position in the whole book,
    if known; `rest` is the fraction of a listened second that is not counted yet."""

    at: str
    playing: bool
    segment_id: str
    position_seconds: float
    moment: float | None
    play_speed: float
    started_at: str | None
    rest: float = 0.0
    device: str | UnsetType = UNSET


class Counted(Struct, kw_only=True):
    """The effect of an event: the state after it, and what it adds."""

    state: Listening
    plays: int
    listen_seconds: int


class Place(NamedTuple):
    """A position in a segment."""

    segment_id: str
    position_seconds: float


def current_place(
    segment_id: str, position_seconds: float, durations: DurationMap | None
) -> Place | None:
    """Return a position in the segments that are active now; None if the segment is unknown.

    A position in a superseded segment is the same moment of the active one, or its end, if a merged
    file is a little shorter. Without a duration map, or if no segment is active at that moment, it
    stays as it is.
    """
    if durations is None or not durations.segments:
        return Place(segment_id, position_seconds)
    found = next((span for span in durations.segments if span.id == segment_id), None)
    if found is None:
        return None
    if found.active:
        return Place(segment_id, position_seconds)
    at = found.offset_start + min(position_seconds, found.duration)
    for span in durations.segments:
        if span.active and span.offset_start <= at <= span.offset_start + span.duration:
            return Place(span.id, at - span.offset_start)
    last = max((each for each in durations.segments if each.active), key=_end, default=None)
    if last is not None and _end(last) < at <= _end(last) / (1 - MERGE_TOLERANCE):
        return Place(last.id, last.duration)
    return Place(segment_id, position_seconds)


def _end(span: SegmentSpan) -> float:
    return span.offset_start + span.duration


def count(state: Listening | None, event: PlaybackEvent, durations: DurationMap | None) -> Counted:
    """Return the effect of the next event of a listener and book."""
    place = moment(event.segment_id, event.position_seconds, durations)
    listened = (0.0 if state is None else state.rest) + _listened(state, event, place)
    after = Listening(
        through="",
        at=event.created_at,
        playing=event.event_type in ("start", "progress"),
        segment_id=event.segment_id,
        position_seconds=event.position_seconds,
        moment=place,
        play_speed=event.play_speed,
        started_at=event.created_at
        if event.event_type == "start"
        else None
        if state is None
        else state.started_at,
        rest=listened % 1,
        device=event.device,
    )
    return Counted(state=after, plays=int(_is_play(state, event)), listen_seconds=int(listened))


def unheard(event: PlaybackEvent) -> Listening:
    """Return the state before the first event that counts."""
    return Listening(
        through="",
        at=event.created_at,
        playing=False,
        segment_id="",
        position_seconds=0.0,
        moment=None,
        play_speed=event.play_speed,
        started_at=None,
    )


def moment(segment_id: str, position_seconds: float, durations: DurationMap | None) -> float | None:
    """Return a position in a segment as one in the book; None if the segment is not in the map."""
    for span in durations.segments if durations is not None else ():
        if span.id == segment_id:
            return span.offset_start + min(position_seconds, span.duration)
    return None


def percent(event: PlaybackEvent, durations: DurationMap | None, before: float = 0.0) -> float:
    """Return how much of the book was played at an event, from 0 to 100; `before`, if that is not
    known."""
    if event.event_type == "complete":
        return 100.0
    place = moment(event.segment_id, event.position_seconds, durations)
    if place is None or durations is None or not durations.total_duration:
        return before
    return min(100.0, round(100 * place / durations.total_duration, 2))


def status(progress: Progress) -> Status:
    """Return the status: the one set manually, until it is cleared; else by percentage."""
    if progress.manual_status is not UNSET:
        return progress.manual_status
    if progress.percent_complete >= FINISHED_PERCENT:
        return "finished"
    return "in_progress" if progress.percent_complete > 0 else "unstarted"


def _is_play(state: Listening | None, event: PlaybackEvent) -> bool:
    if event.event_type != "start":
        return False
    if state is None or state.started_at is None:
        return True
    return abs(_seconds(state.started_at, event.created_at)) >= PLAY_APART_SECONDS


def _listened(state: Listening | None, event: PlaybackEvent, place: float | None) -> float:
    if state is None or not state.playing or event.event_type == "start":
        return 0.0
    step = _step(state, event, place)
    passed = max(0.0, _seconds(state.at, event.created_at))
    possible = passed * max(state.play_speed, event.play_speed) + SEEK_SLACK_SECONDS
    return step if 0 < step <= possible else 0.0


def _step(state: Listening, event: PlaybackEvent, place: float | None) -> float:
    if state.moment is not None and place is not None:
        return place - state.moment
    return (
        event.position_seconds - state.position_seconds
        if state.segment_id == event.segment_id
        else 0.0
    )


def _seconds(start: str, end: str) -> float:
    """Return the time between two events; none, if another program wrote one that has no time."""
    try:
        return (SECONDS.parse(end) - SECONDS.parse(start)) / 1_000
    except DocumentError:
        return 0.0
