"""Counting playback: plays, listened seconds and progress of one event. Pure; it knows no keys.

A play counts on `start`, unless another start is less than 30 minutes away.

Listened seconds are seconds of the book, from forward progress between two events during playback.
A step larger than the elapsed time allows at the playback speed (with some slack, for late reports)
is a seek and counts nothing; so does a step back. Time before a `start`, or after a `pause` or
`complete`, does not count.

Events count in the order in which they arrive, each at the time at which it happened. Events
of a device that had no network arrive later, and may be older than those of another device:

    event                                     its step is from
    not older than the newest one             the newest one
    older                                     the older one before it, of the same device; else none
    the first that is not older, after such   the older one before it, of the same device

A device states how old its events are, so no time counts twice: the state holds the starts
(`starts`) and the times in which seconds were counted (`credited`), as spans. A step counts for the
part of its time that is in no span, without slack if that is not the whole. The slack is one
allowance, which is used up (`ahead`) as steps run ahead of the time, and comes back as time passes.

Positions lead forward only as long as they are known. An event of a segment that a merge has
superseded counts at the same moment of the segment that plays there now (`current_place`). An event
of an unknown segment, or of a book without a duration map, keeps the percentage that was reached.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from keyhouse.errors import DocumentError
from keyhouse.schema import SECONDS, LogState
from keyhouse_audiobooks.listening.time_spans import TimeSpan, is_near, joined, uncovered
from keyhouse_audiobooks.records import DurationMap, PlaybackEvent, Progress, SegmentSpan, Status

__all__ = [
    "FINISHED_PERCENT",
    "MERGE_TOLERANCE",
    "PLAY_APART_SECONDS",
    "SEEK_SLACK_SECONDS",
    "Counted",
    "CountedTime",
    "Listening",
    "Place",
    "PlayPoint",
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
DEVICES_LATE_MAX: Final = 4
"""Devices of a listener that send older events at the same time."""


class PlayPoint(Struct, kw_only=True, frozen=True):
    """The playback at the time of an event: the step of the next one is from here."""

    at: str
    playing: bool
    segment_id: str
    position_seconds: float
    moment: float | None
    play_speed: float
    device: str | UnsetType = UNSET


class CountedTime(Struct, kw_only=True, frozen=True, omit_defaults=True):
    """The times that have counted, as spans of seconds. `ahead` are the seconds by which counted
    steps are ahead of their time. `newest` is the newest event, if it is not the last that arrived;
    `late` has the last one of each device that sends older events."""

    starts: Sequence[TimeSpan] = ()
    credited: Sequence[TimeSpan] = ()
    ahead: float = 0.0
    newest: PlayPoint | UnsetType = UNSET
    late: Sequence[PlayPoint] = ()


class Listening(LogState, kw_only=True):
    """The state of counting for one listener and book. `moment` is the position in the whole book,
    if known; `rest` is the fraction of a listened second that is not counted yet. A state that was
    stored without `counted` knows only the last start."""

    at: str
    playing: bool
    segment_id: str
    position_seconds: float
    moment: float | None
    play_speed: float
    started_at: str | None
    rest: float = 0.0
    device: str | UnsetType = UNSET
    counted: CountedTime | UnsetType = UNSET


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
    for found in durations.segments:
        if found.id == segment_id:
            break
    else:
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
    point = PlayPoint(
        at=event.created_at,
        playing=event.event_type in ("start", "progress"),
        segment_id=event.segment_id,
        position_seconds=event.position_seconds,
        moment=moment(event.segment_id, event.position_seconds, durations),
        play_speed=event.play_speed,
        device=event.device,
    )
    before = _counted_before(state)
    is_start = event.event_type == "start"
    starts, is_play = (
        _with_start(before.starts, event.created_at) if is_start else (before.starts, False)
    )
    step, newest, late = _order(state, before, point)
    credit = _credit(before, step, is_start)
    listened = (0.0 if state is None else state.rest) + credit.seconds
    after = Listening(
        through="",
        at=point.at,
        playing=point.playing,
        segment_id=point.segment_id,
        position_seconds=point.position_seconds,
        moment=point.moment,
        play_speed=point.play_speed,
        started_at=point.at if is_start else None if state is None else state.started_at,
        rest=listened % 1,
        device=point.device,
        counted=CountedTime(
            starts=starts,
            credited=credit.spans,
            ahead=credit.ahead,
            newest=UNSET if newest is point else newest,
            late=late,
        ),
    )
    return Counted(state=after, plays=int(is_play), listen_seconds=int(listened))


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
    if durations is not None:
        for span in durations.segments:
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


class _Step(NamedTuple):
    """From one event to the next. `is_current`: from the newest of all events."""

    before: PlayPoint
    after: PlayPoint
    is_current: bool


class _Credit(NamedTuple):
    """The seconds that a step adds, and the spans and the lead after it."""

    seconds: float
    spans: Sequence[TimeSpan]
    ahead: float


def _counted_before(state: Listening | None) -> CountedTime:
    if state is None:
        return CountedTime()
    if state.counted is not UNSET:
        return state.counted
    return CountedTime(
        starts=() if state.started_at is None else _with_start((), state.started_at)[0]
    )


def _with_start(starts: Sequence[TimeSpan], text: str) -> tuple[Sequence[TimeSpan], bool]:
    """Return the starts with one more, and whether it is a play."""
    at = _time(text)
    if at is None:
        return starts, not starts
    is_play = not is_near(starts, at, PLAY_APART_SECONDS)
    return joined(starts, at, at, apart=PLAY_APART_SECONDS), is_play


def _order(
    state: Listening | None, before: CountedTime, point: PlayPoint
) -> tuple[_Step | None, PlayPoint, Sequence[PlayPoint]]:
    """Return the step that leads to an event, the newest event after it, and the late ones."""
    if state is None:
        return None, point, ()
    newest = _last(state) if before.newest is UNSET else before.newest
    own, others = None, before.late
    if others:
        own = next((each for each in others if each.device == point.device), None)
        others = [each for each in others if each is not own]
    behind = _seconds(point.at, newest.at)
    if behind > SEEK_SLACK_SECONDS:
        step = None if own is None else _Step(own, point, is_current=False)
        return step, newest, [*others, point][-DEVICES_LATE_MAX:]
    current = point if behind <= 0 else replace(point, at=newest.at)
    return _Step(own or newest, current, is_current=own is None), current, others


def _last(state: Listening) -> PlayPoint:
    return PlayPoint(
        at=state.at,
        playing=state.playing,
        segment_id=state.segment_id,
        position_seconds=state.position_seconds,
        moment=state.moment,
        play_speed=state.play_speed,
        device=state.device,
    )


def _credit(counted: CountedTime, step: _Step | None, is_start: bool) -> _Credit:
    """Return what a step counts: its forward progress, for time that has not counted yet."""
    spans, ahead = counted.credited, counted.ahead
    if step is None:
        return _Credit(0.0, spans, ahead)
    before, after, is_current = step
    start, end = _time(before.at), _time(after.at)
    if start is None or end is None:
        start = end = 0
    passed = max(0, end - start)
    speed = max(before.play_speed, after.play_speed)
    forward = 0.0 if is_start or not before.playing else _forward(before, after)
    free = uncovered(spans, start, end)
    possible = speed * free
    seconds = min(forward, possible + (SEEK_SLACK_SECONDS - ahead if free == passed else 0))
    if not 0 < forward <= passed * speed + SEEK_SLACK_SECONDS or seconds <= 0:
        return _Credit(0.0, spans, max(0.0, ahead - passed) if is_current else ahead)
    if start < end:
        spans = joined(spans, start, end)
    return _Credit(seconds, spans, max(0.0, ahead + seconds - possible))


def _forward(before: PlayPoint, after: PlayPoint) -> float:
    if before.moment is not None and after.moment is not None:
        return after.moment - before.moment
    return (
        after.position_seconds - before.position_seconds
        if before.segment_id == after.segment_id
        else 0.0
    )


@lru_cache(1_024)
def _time(text: str) -> int | None:
    """Return the second of an event; None, if another program wrote one that has no time."""
    try:
        return SECONDS.parse(text) // 1_000
    except DocumentError:
        return None


def _seconds(start: str, end: str) -> int:
    """Return the time between two events; none, if one of them has no time."""
    first, last = _time(start), _time(end)
    return 0 if first is None or last is None else last - first
