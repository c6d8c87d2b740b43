"""Lines of an import: entries in today's form, and in those of earlier programs.

    {"profileId": "p1", "attr": {"assetId": "1981", …}, "ext": {…}, "m": {"timestamps": […]}}
    {"profileId": "p1", "a.assetId": "1981", "a.state": "In progress", "a.totalTime": "PT1H50M4S"}

The second is a flat item of DynamoDB. A duration may be ISO 8601 text, a state has any case and
spaces, and an id may be a number. This module is pure: it reads and writes no rows.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from keyhouse.errors import DocumentError, RecordError
from keyhouse_history.events import check_asset, make_event, parse_time
from keyhouse_history.fold import COMPLETED, ViewingEvent
from keyhouse_history.limits import SECONDS_MAX

__all__ = ["ImportLine", "parse_line"]

_DURATION: Final = re.compile(
    r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?", re.ASCII
)
_PREFIXES: Final = {"a.": "attr", "e.": "ext", "m.": "m"}
_SECONDS: Final = (86_400, 3_600, 60, 1)


class ImportLine(msgspec.Struct, frozen=True):
    """One line: its profile, and the events that make up its entry, oldest first."""

    profile: str
    events: list[ViewingEvent]


class _Entry(msgspec.Struct):
    attr: dict[str, Any]
    ext: dict[str, Any] = {}
    m: dict[str, Any] = {}


def parse_line(line: bytes, profile: str | None, completed_percent: float) -> ImportLine:
    """Parse a line; KeyhouseError if it is not an entry. `profile` is that of lines without one."""
    try:
        plain = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DocumentError("The line is not JSON.", reason=str(error)) from None
    if not isinstance(plain, dict):
        raise RecordError("The line is not a JSON object.")
    name = plain.get("profileId", profile)
    if not isinstance(name, str) or not name:
        raise RecordError("The line names no profile: add profileId, or use --profile.")
    try:
        entry = msgspec.convert(_nested(plain), _Entry)
    except msgspec.ValidationError as error:
        raise RecordError("The line is not an entry.", reason=str(error)) from None
    return ImportLine(name, _events(entry, completed_percent))


def _nested(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of an entry, also of a flat item."""
    nested = {name: plain[name] for name in ("attr", "ext", "m") if name in plain}
    for name, value in plain.items():
        if member := _PREFIXES.get(name[:2]):
            nested.setdefault(member, {})[name[2:]] = value
    return nested


def _events(entry: _Entry, completed_percent: float) -> list[ViewingEvent]:
    attr = entry.attr
    asset = attr.get("assetId")
    if isinstance(asset, int) and not isinstance(asset, bool):
        asset = str(asset)
    if not isinstance(asset, str):
        raise RecordError("attr.assetId is missing, or is not text.")
    check_asset(asset)
    for name in ("assetType", "updateTime"):
        if not isinstance(attr.get(name), str):
            raise RecordError("A member is missing, or is not text.", member=f"attr.{name}")
    newest = make_event(
        asset_id=asset,
        asset_type=attr["assetType"],
        total_time=_seconds(attr, "totalTime"),
        progress=_seconds(attr, "progress"),
        update_time=attr["updateTime"],
        state=_state(attr.get("state")),
        ext=entry.ext,
        completed_percent=completed_percent,
    )
    times = entry.m.get("timestamps", []) if newest.state == COMPLETED else []
    if not isinstance(times, list) or not all(isinstance(each, str) for each in times):
        raise RecordError("m.timestamps is not a list of times.")
    earlier = {at for each in times if (at := parse_time(each)) < newest.at}
    return [*(msgspec.structs.replace(newest, at=at) for at in sorted(earlier)), newest]


def _seconds(attr: Mapping[str, Any], name: str) -> int | float:
    value = attr.get(name)
    if isinstance(value, str) and (match := _DURATION.fullmatch(value)) and any(match.groups()):
        parts = zip(match.groups(), _SECONDS, strict=True)
        total = sum((float(part or 0) * seconds for part, seconds in parts), 0.0)
        value = int(total) if total.is_integer() else total
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RecordError(
            "A member is missing, or is neither a number of seconds nor a duration.",
            member=f"attr.{name}",
        )
    if name == "totalTime" and value < 0:
        raise RecordError("A total time is not negative.", member="attr.totalTime")
    if not -SECONDS_MAX <= value <= SECONDS_MAX:
        raise RecordError("A time has too many seconds.", member=f"attr.{name}", limit=SECONDS_MAX)
    return value


def _state(text: Any) -> Any:
    if text is None:
        return None
    state = str(text).strip().upper().replace(" ", "_").replace("-", "_")
    if state not in ("IN_PROGRESS", "COMPLETED"):
        raise RecordError("The state is neither in progress nor completed.", state=text)
    return state
