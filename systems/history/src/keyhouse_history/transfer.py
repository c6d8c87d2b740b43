"""Import of entries into the profiles of a store."""

from collections.abc import Callable, Iterable

import msgspec

from keyhouse.engine import Engine
from keyhouse.errors import CallerError
from keyhouse.service.usage import Quota
from keyhouse_history.events import store_events
from keyhouse_history.legacy import parse_line
from keyhouse_history.profiles import Profile
from keyhouse_history.settings import HistorySettings

__all__ = ["ImportReport", "RejectedLine", "import_lines"]

_REPORT_LINES = 100


class RejectedLine(msgspec.Struct, frozen=True):
    """A line that was not imported, and why."""

    line: int
    error: str


class ImportReport(msgspec.Struct, frozen=True):
    """Lines that changed something, those that did not, those that were too old for a full profile,
    and those rejected."""

    applied: int
    unchanged: int
    too_old: int
    rejected: list[RejectedLine]


async def import_lines(
    engine: Engine,
    lines: Iterable[bytes],
    *,
    profile: str | None = None,
    settings: HistorySettings | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> ImportReport:
    """Store each line by the rules for events, each by one commit. Empty lines are skipped."""
    given = settings or HistorySettings()
    profiles: dict[str, Profile] = {}
    applied = unchanged = too_old = 0
    rejected: list[RejectedLine] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            parsed = parse_line(line, profile, given.completed_percent)
            if parsed.profile not in profiles:
                profiles[parsed.profile] = Profile(
                    parsed.profile, engine, Quota(), entries_max=given.entries_max
                )
            stored = await store_events(profiles[parsed.profile], parsed.events)
        except CallerError as error:
            rejected.append(RejectedLine(number, str(error)))
            continue
        applied += stored.applied
        unchanged += stored.stored and not stored.applied
        too_old += not stored.stored
        if on_progress is not None and number % _REPORT_LINES == 0:
            on_progress(number)
    return ImportReport(applied, unchanged, too_old, rejected)
