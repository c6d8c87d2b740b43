"""Fold rules: the entries of one asset after an event, as a pure function of the entries before it.

    event         stored                                  result
    -----------   -------------------------------------   -----------------------------------------
    IN_PROGRESS   COMPLETED of the same time or later     unchanged
                  IN_PROGRESS of a later time             unchanged
                  anything else                           it is the IN_PROGRESS entry
    COMPLETED     COMPLETED of a later time               its time is added, the rest unchanged
                  anything else                           it is the COMPLETED entry, with its time
                  IN_PROGRESS of the same time or before  removed
                  IN_PROGRESS of a later time             stays

Of two events of one time and state, the one with more progress wins; then total time, type and
`ext` decide, so that the result does not depend on their order. An event that is stored already
changes nothing.

Both entries have the same `ext`: that of the newest event. An event without one keeps what is
stored, so with such events the `ext` depends on the order of arrival; nothing else does.
"""

from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct

from keyhouse.schema import MILLISECONDS
from keyhouse_history.limits import TIMESTAMPS_MAX
from keyhouse_history.schema import (
    Attributes,
    HistoryEntry,
    Marks,
    Seconds,
    State,
    clamped,
    moment_of,
)

__all__ = ["COMPLETED", "IN_PROGRESS", "NOTHING", "AssetEntries", "ViewingEvent", "fold"]

IN_PROGRESS: Final = "IN_PROGRESS"
COMPLETED: Final = "COMPLETED"

_encode = msgspec.json.Encoder(order="sorted").encode


class ViewingEvent(Struct, frozen=True, kw_only=True):
    """A viewing as it was reported. `at` is in milliseconds since 1970; `ext` None: keep the stored
    one."""

    asset_id: str
    asset_type: str
    total_time: Seconds
    progress: int | float
    at: int
    state: State
    ext: dict[str, Any] | None = None

    def entry(self, ext: dict[str, Any]) -> HistoryEntry:
        """Return the entry of this event alone."""
        progress, percentage = clamped(self.progress, self.total_time)
        attributes = Attributes(
            asset_id=self.asset_id,
            asset_type=self.asset_type,
            total_time=self.total_time,
            state=self.state,
            progress=progress,
            update_time=MILLISECONDS.format(self.at),
            progress_percentage=percentage,
        )
        return HistoryEntry(attr=attributes, ext=ext)


class AssetEntries(Struct, frozen=True):
    """The entries of one asset."""

    in_progress: HistoryEntry | None = None
    completed: HistoryEntry | None = None

    def get(self, state: Literal["IN_PROGRESS", "COMPLETED"]) -> HistoryEntry | None:
        return self.in_progress if state == IN_PROGRESS else self.completed

    def newest_first(self) -> list[HistoryEntry]:
        entries = [entry for entry in (self.completed, self.in_progress) if entry is not None]
        return sorted(entries, key=moment_of, reverse=True)

    @property
    def count(self) -> int:
        return (self.in_progress is not None) + (self.completed is not None)

    @property
    def ext(self) -> dict[str, Any]:
        """The `ext` of the newest event."""
        newest = self.newest_first()
        return newest[0].ext if newest else {}


NOTHING: Final = AssetEntries()


def fold(stored: AssetEntries, event: ViewingEvent) -> AssetEntries:
    """Return the entries after the event: `stored` itself if it changes nothing."""
    if event.state == IN_PROGRESS:
        return _progressed(stored, event)
    return _completed(stored, event)


def _progressed(stored: AssetEntries, event: ViewingEvent) -> AssetEntries:
    completed = stored.completed
    if completed is not None and event.at <= moment_of(completed):
        return stored
    if stored.in_progress is not None and not _wins(event, stored.in_progress):
        return stored
    ext = stored.ext if event.ext is None else event.ext
    if completed is not None:
        completed = msgspec.structs.replace(completed, ext=ext)
    return AssetEntries(event.entry(ext), completed)


def _completed(stored: AssetEntries, event: ViewingEvent) -> AssetEntries:
    in_progress, completed = stored.in_progress, stored.completed
    if in_progress is not None and event.at >= moment_of(in_progress):
        in_progress = None
    late = completed if completed is not None and not _wins(event, completed) else None
    is_newest = late is None and in_progress is None
    ext = stored.ext if event.ext is None or not is_newest else event.ext
    after = event.entry(ext) if late is None else msgspec.structs.replace(late, ext=ext)
    after.m = Marks(timestamps=_with_time(completed, event.at))
    if completed == after and in_progress is stored.in_progress:
        return stored
    return AssetEntries(in_progress, after)


def _wins(event: ViewingEvent, stored: HistoryEntry) -> bool:
    """Return whether the event replaces a stored entry of its state."""
    at = moment_of(stored)
    if event.at != at:
        return event.at > at
    ours = event.entry({}).attr
    new, old = _rank(ours), _rank(stored.attr)
    if new != old or event.ext is None:
        return new > old
    return _encode(event.ext) > _encode(stored.ext)


def _rank(attr: Attributes) -> tuple[int | float, int | float, str]:
    return attr.progress, attr.total_time, attr.asset_type


def _with_time(completed: HistoryEntry | None, at: int) -> list[str]:
    """Return the times of completion with another one: sorted, unique, the newest ones."""
    marks = UNSET if completed is None else completed.m
    times = set() if marks is UNSET else set(marks.timestamps)
    return sorted(times | {MILLISECONDS.format(at)})[-TIMESTAMPS_MAX:]
