"""History: what a profile has watched and how far, by show, season, sport, series and team.

A space is a profile. `schema` declares the keyspace; `paths` derives the paths of an entry from its
attributes; `fold` has the rules for events in any order.
"""

from keyhouse.layout import DynamodbLayout, IndexedPath, Layouts
from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "history",
    title="Viewing history",
    doc=__doc__,
    schemas="keyhouse_history.schema:SCHEMAS",
    service="keyhouse_history.service:SERVICE",
    remote="keyhouse_history.remote",
    commands="keyhouse_history.commands:app",
    limits="keyhouse_history.limits",
    layouts=Layouts(
        dynamodb=DynamodbLayout(
            space="profileId",
            key="sortKey",
            members={"attr": "a.", "ext": "e.", "m": "m."},
            lists=("assetIds", "truncated"),
            paths=(
                IndexedPath(
                    "path.hierarchy",
                    ("e.showCategoryId", "e.seasonCategoryId"),
                    "path.hierarchy-index",
                ),
                IndexedPath("path.sport", ("e.sport", "e.series-id"), "path.sport-index"),
            ),
        ),
    ),
)
