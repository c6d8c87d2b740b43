"""History: what a profile has watched, how far, and by show, season, sport, series and team.

A space is a profile. The keyspace is declared in `schema`; `paths` says how an entry's attributes make the paths it is found
at. It knows nothing of events that come out of order, which the service settles before it writes.
"""

from keyhouse.systems.history.paths import PARTS, Path, hierarchy, sport, teams, whole_prefixes
from keyhouse.systems.history.schema import (
    ASSETS_IN_SEASON,
    ASSETS_IN_STATE,
    ASSETS_OF_TEAM,
    BY_HIERARCHY,
    BY_SPORT,
    ENTRY,
    SCHEMAS,
    Attributes,
    HistoryEntry,
    Marks,
)

__all__ = [
    "ASSETS_IN_SEASON",
    "ASSETS_IN_STATE",
    "ASSETS_OF_TEAM",
    "BY_HIERARCHY",
    "BY_SPORT",
    "ENTRY",
    "PARTS",
    "SCHEMAS",
    "Attributes",
    "HistoryEntry",
    "Marks",
    "Path",
    "hierarchy",
    "sport",
    "teams",
    "whole_prefixes",
]
