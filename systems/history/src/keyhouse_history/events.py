"""Events of a profile: checking one, and storing it by one commit. Knows no HTTP."""

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import partial, reduce
from typing import Any, Final

import msgspec
from msgspec import Struct

from keyhouse.engine import number_of
from keyhouse.errors import KeyFieldError, LimitError, RecordError, UsageError
from keyhouse.schema import MILLISECONDS, Record
from keyhouse.store import Transaction
from keyhouse_history.fold import (
    COMPLETED,
    IN_PROGRESS,
    AssetEntries,
    ViewingEvent,
    fold,
)
from keyhouse_history.limits import EVICTIONS_MAX, MOMENT_MAX, TEAMS_MAX
from keyhouse_history.paths import teams
from keyhouse_history.profiles import Profile
from keyhouse_history.schema import (
    ENTRIES,
    ENTRY,
    NEWEST,
    PATH_ATTRIBUTES,
    HistoryEntry,
    State,
    moment_of,
)

__all__ = [
    "STATES",
    "StoredEvent",
    "check_asset",
    "decode_event",
    "delete_asset",
    "make_event",
    "parse_time",
    "store_events",
]

STATES: Final[tuple[State, ...]] = (IN_PROGRESS, COMPLETED)

_RFC_3339 = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?"
    r"([Zz]|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_RATIO_ERROR_MAX: Final = 1e-6
"""A difference of floats, in percent, that is certainly not a rounding error."""

_NO_IDS: Final = frozenset({"", ".", ".."})
_is_plain_id: Final = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII).fullmatch
"""Most ids: certainly valid, also after encoding."""


class StoredEvent(Struct, frozen=True):
    """The stored entry after an event, and whether the event changed anything. `stored` is False if
    a full profile has only newer entries, and none of the asset: `entry` is what was not stored."""

    entry: HistoryEntry
    applied: bool
    stored: bool = True


def parse_time(text: str) -> int:
    """Return milliseconds since 1970; UsageError if it is not a time with a zone, from 1970 on."""
    if not _RFC_3339.fullmatch(text):
        raise UsageError(
            "updateTime must be RFC 3339 with a zone, such as 2026-01-18T12:00:00.000Z.", given=text
        )
    moment = MILLISECONDS.parse(text.upper())
    if not 0 <= moment <= MOMENT_MAX:
        raise UsageError("updateTime must be in the years 1970 to 2286.", given=text)
    return moment


def check_asset(asset: str) -> None:
    """Raise KeyFieldError if no entry can have this asset id."""
    if _is_plain_id(asset):
        return
    if asset in _NO_IDS:
        raise KeyFieldError("Invalid asset id: no URL could address it.", asset=asset)
    ENTRY.template.build({"state": IN_PROGRESS, "asset": asset})


def make_event(
    *,
    asset_id: str,
    asset_type: str,
    total_time: int | float,
    progress: int | float,
    update_time: str,
    state: State | None,
    ext: dict[str, Any] | None,
    completed_percent: float,
) -> ViewingEvent:
    """Return the event. UsageError for an invalid time or too many teams, RecordError for another
    invalid value."""
    at = parse_time(update_time)
    if ext is not None:
        _check_ext(ext)
    if state is None:
        state = COMPLETED if _is_complete(progress, total_time, completed_percent) else IN_PROGRESS
    return ViewingEvent(
        asset_id=asset_id,
        asset_type=asset_type,
        total_time=total_time,
        progress=progress,
        at=at,
        state=state,
        ext=ext,
    )


def _check_ext(ext: dict[str, Any]) -> None:
    for name in PATH_ATTRIBUTES:
        if not isinstance(ext.get(name, ""), str):
            raise RecordError("This member of ext must be text.", member=f"ext.{name}")
    if (count := len(teams(ext))) > TEAMS_MAX:
        raise UsageError("Too many teams in ext.team-ids.", teams=count, limit=TEAMS_MAX)


def _is_complete(progress: int | float, total: int | float, percent: float) -> bool:
    """Compare the exact ratio: 94.999 % is not 95 %, however it is displayed."""
    if total <= 0:
        return False
    difference = 100 * (progress / total) - percent
    if abs(difference) > _RATIO_ERROR_MAX:
        return difference > 0
    return Fraction(progress) * 100 >= Fraction(percent) * Fraction(total)


async def store_events(profile: Profile, events: Sequence[ViewingEvent]) -> StoredEvent:
    """Fold events of one asset into its entries, by one commit; usually one event. If they are not
    newer than what is stored, nothing changes. The newest one is the last.

    In a full profile the oldest entry is deleted by the same commit; where one commit cannot hold
    both, by the one before.
    """
    try:
        try:
            return await profile.write(partial(_store, profile, events))
        except LimitError:
            if not await profile.write(partial(_evict_alone, profile, events[-1])):
                raise
            return await profile.write(partial(_store, profile, events))
    except KeyFieldError as error:
        raise RecordError(
            "A member of the event is too long for a key, or empty.", reason=str(error)
        ) from None


async def delete_asset(profile: Profile, asset: str) -> None:
    """Delete the asset's entries, if there are any."""

    async def work(tx: Transaction) -> None:
        await tx.get_each(*_addresses(asset))  # by one read
        for state in STATES:
            await tx.delete(ENTRY, state=state, asset=asset)

    await profile.write(work)


async def _store(profile: Profile, events: Sequence[ViewingEvent], tx: Transaction) -> StoredEvent:
    event = events[-1]
    asset = event.asset_id
    before = AssetEntries(*await tx.get_each(*_addresses(asset)))
    after = reduce(fold, events, before)
    if after is before:
        found = before.get(event.state) or before.completed
        assert found is not None
        return StoredEvent(found, applied=False)
    growth = after.count - before.count
    evicted = set[State]()
    if growth > 0:
        oldest = await _oldest(profile, tx, growth)
        position = _position(event.at, asset, event.state)
        if any(position >= _position_of(each) for each in oldest):
            return _unstored(before, after, event.state)
        await _delete(tx, oldest)
        evicted = {each.attr.state for each in oldest if each.attr.asset_id == asset}
    for state in STATES:
        old, new = before.get(state), after.get(state)
        if state in evicted:
            continue
        if new is None and old is not None:
            await tx.delete(ENTRY, state=state, asset=asset)
        elif new is not None and new != old:
            await tx.put(ENTRY, new)
    stored = after.get(event.state) or after.newest_first()[0]
    return StoredEvent(stored, applied=True)


def _position(at: int, asset: str, state: State) -> str:
    """Return the key by which entries are ordered, newest first: the last one is deleted first."""
    return NEWEST.template.build({"at": at, "asset": asset, "state": state})


def _position_of(entry: HistoryEntry) -> str:
    return _position(moment_of(entry), entry.attr.asset_id, entry.attr.state)


def _unstored(before: AssetEntries, after: AssetEntries, state: State) -> StoredEvent:
    """Return the answer to an event that is older than all of a full profile."""
    if before.newest_first():
        return StoredEvent(before.get(state) or before.newest_first()[0], applied=False)
    return StoredEvent(after.newest_first()[0], applied=False, stored=False)


def _addresses(asset: str) -> list[tuple[Record[HistoryEntry], dict[str, str]]]:
    """Return where an asset's entries are, in the order of `STATES`."""
    return [(ENTRY, {"state": state, "asset": asset}) for state in STATES]


async def _oldest(profile: Profile, tx: Transaction, growth: int) -> list[HistoryEntry]:
    """Return the entries to delete so that `growth` more fit, oldest first.

    The number of entries is checked by the commit only where the profile is nearly full: elsewhere
    two new entries do not conflict.
    """
    excess = await profile.store.record_count(ENTRIES) + growth - profile.entries_max
    if excess < 0:
        return []
    key = tx.binding.derived(ENTRIES).template.build({})
    row = await tx.row(key)
    excess = (0 if row is None else number_of(key, row[0])) + growth - profile.entries_max
    if excess <= 0:
        return []
    count = min(excess, EVICTIONS_MAX)
    scan = profile.store.scan(ENTRY, by=NEWEST, reverse=True, limit=count, unreadable="skip")
    return [each.record async for each in scan]


async def _delete(tx: Transaction, entries: list[HistoryEntry]) -> None:
    for each in entries:
        await tx.delete(ENTRY, state=each.attr.state, asset=each.attr.asset_id)


async def _evict_alone(profile: Profile, event: ViewingEvent, tx: Transaction) -> bool:
    oldest = await _oldest(profile, tx, 1)
    await _delete(tx, [each for each in oldest if moment_of(each) < event.at])
    return bool(oldest)


def decode_event(plain: Any, kind: type[Struct]) -> Any:
    """Return an event of a batch; RecordError if it has another type."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise RecordError("The event does not have the right type.", reason=str(error)) from None
