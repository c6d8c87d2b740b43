"""Limits of the audiobook library, each with its unit and origin."""

from typing import Final

USERNAME_CHARS_MAX: Final = 64
"""Characters of the name of a user."""

API_KEYS_MAX: Final = 50
"""API keys of a user: they are stored in one value."""

SESSIONS_MAX: Final = 100
"""Sessions of a user: a further login ends the oldest of them."""

BOOKMARKS_MAX: Final = 5_000
"""Bookmarks of a user: a request lists all of one book, and a merge moves them."""

PREFERENCES_MAX: Final = 2_000
"""Preferences of a user. The pages have one for each book whose speed was changed."""

PREFERENCE_BYTES_MAX: Final = 64 * 1_024
"""Bytes of the JSON of a preference."""

PLAYLISTS_MAX: Final = 200
"""Playlists of a user, and playlists that all users share: one page lists all of them."""

PLAYLIST_BOOKS_MAX: Final = 1_000
"""Books of a playlist: one response has all of them, and one commit reorders them."""
