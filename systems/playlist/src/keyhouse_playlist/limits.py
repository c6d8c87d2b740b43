"""Limits of the playlist service, each with its unit and origin."""

from typing import Final

DAYS_KEPT: Final = 366
"""Days for which daily counts are stored: the widest window of the statistics."""

PLAYLISTS_MAX: Final = 2_000
"""Playlists of a namespace: the index is one value, of at most 380 KiB on every engine."""

PLAYLIST_ITEMS_MAX: Final = 2_000
"""Items of a playlist: the document is one value, of at most 380 KiB on every engine."""

PLAYLIST_NAME_CHARS_MAX: Final = 200
"""The name of a playlist, which is part of a key."""

USERNAME_CHARS_MAX: Final = 64
"""A user's name, which is part of keys. CyTube allows 20."""

VIDEO_ID_CHARS_MAX: Final = 200
"""The id of a catalog item, which is part of keys."""

OTP_SECONDS: Final = 300
"""Lifetime of a code, and of the intent to block an address."""

OTP_FAILURES_MAX: Final = 3
"""Wrong codes of a name until it is locked for clients that did not request a code, and guesses at
a code by the client that requested it."""

LOCK_SECONDS: Final = 3_600
"""Time for which a name is locked, and after which failures are forgotten."""

OTP_RATE_SECONDS: Final = 900
"""Window in which requests for codes are counted."""

OTP_PER_NAME_MAX: Final = 60
"""Requests for codes of one name in the window, from all clients that are not known. With three
guesses at each code this bounds the guesses: 723 an hour, of 36^8 codes."""

OTP_PER_KNOWN_CLIENT_MAX: Final = 5
"""Requests for codes of one name in the window from a client from which its user signed in before:
60 more guesses an hour. Only a sign-in makes one."""

OTP_PER_NAME_AND_ADDRESS_MAX: Final = 5
"""Requests for codes of one name from one address in the window."""

OTP_PER_ADDRESS_MAX: Final = 20
"""Requests for codes from one address in the window."""

BLOCK_HOURS_DEFAULT: Final = 72
"""Hours for which an address is blocked if the request does not say."""

BLOCK_HOURS_MAX: Final = 720
"""Longest block of an address."""

LIKE_SECONDS: Final = 24 * 3_600
"""Time in which a second like of the same user and item is a duplicate."""

PLAY_SECONDS: Final = 24 * 3_600
"""Time for which a counted play is remembered, so that it is not counted from the bucket again."""

PLAY_EVENT_SECONDS: Final = 5
"""An event that starts an item this soon after its play was counted from the bucket is that play:
both times are whole seconds, of different clocks."""

SEARCH_ITEMS_MAX: Final = 200
"""Items in one response to a search."""

STATISTICS_ITEMS_MAX: Final = 200
"""Items in one response of the statistics."""

MARATHON_SOURCES_MAX: Final = 26
"""Sources of a marathon: their labels are the letters A to Z."""

PATTERN_CHARS_MAX: Final = 200
"""Length of an interleave pattern."""

PATTERN_COUNT_MAX: Final = 1_000
"""Largest count of a token in an interleave pattern."""

CATALOG_ITEMS_MAX: Final = 100_000
"""Items of a catalog: searches are tested with 5,000."""

CATALOG_FILE_BYTES_MAX: Final = 256 * 1_024 * 1_024
"""A file that a catalog is read from."""

TITLE_CHARS_MAX: Final = 1_000
"""The title of a catalog item: MediaCMS and CyTube allow 100."""

CATEGORY_CHARS_MAX: Final = 200
"""The name of a category: MediaCMS allows 100."""

ITEM_CATEGORIES_MAX: Final = 100
"""Categories of one item."""

ADDRESS_CHARS_MAX: Final = 2_048
"""An address in the catalog: what browsers and CyTube take."""

MEDIACMS_PAGE_ITEMS_MAX: Final = 1_000
"""Media of a page, which are handled at once. MediaCMS sends 50."""

MEDIACMS_RESPONSE_BYTES_MAX: Final = 16 * 1_024 * 1_024
"""One response of a MediaCMS: a page of its list, or the details of a medium."""

MEDIACMS_RESPONSE_VALUES_MAX: Final = 250_000
"""Lists, objects and members of one response, which are decoded in one step: a page of 1,000 media
has 43,000."""

MEDIACMS_RESPONSE_SECONDS_MAX: Final = 30.0
"""Time of one response of a MediaCMS."""

MEDIACMS_SECONDS_MAX: Final = 1_800.0
"""Time in which all media of a MediaCMS are read: 100,000 details at 50 ms, eight at once, are
ten minutes."""
