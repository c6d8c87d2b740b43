"""Limits of viewing history, each with its unit and origin."""

from typing import Final

ASSETS_LISTED_MAX: Final = 1_000
"""Assets in one summary row: about 16 KiB, which a write of a new asset rewrites. A list that lacks
some is marked as truncated."""

EVENTS_MAX: Final = 100
"""Events in one `POST /events`: each is its own commit."""

TEAMS_MAX: Final = 30
"""Teams of an entry: a change of all of them fits into one DynamoDB transaction of 100 items."""

TIMESTAMPS_MAX: Final = 100
"""Completion times kept in an entry, the newest ones: the item stays small."""

PAGE_ENTRIES_MAX: Final = 500
"""Entries in one page of a facet."""

PAGE_BYTES_MAX: Final = 8 * 1_024 * 1_024
"""Entries in one page of a facet, unless the first is larger. The cursor leads to the rest."""

ASSETS_ASKED_MAX: Final = 500
"""Assets named in one request."""

SECONDS_MAX: Final = 10**12
"""Total time and progress of an asset, in seconds: well within the numbers of every engine."""

MOMENT_MAX: Final = 10**13 - 1
"""Times of events, in milliseconds since 1970: 13 digits of a key, until the year 2286."""

EVICTIONS_MAX: Final = 4
"""Oldest entries that one commit deletes, if several are too many: it must fit into a DynamoDB
transaction."""
