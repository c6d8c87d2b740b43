"""Limits of the audiobook library, each with its unit and origin."""

from typing import Final

API_KEYS_MAX: Final = 50
"""API keys of a user: they are stored in one value."""

PLAYLISTS_MAX: Final = 200
"""Playlists of a user, and playlists that all users share: one page lists all of them."""

PLAYLIST_BOOKS_MAX: Final = 1_000
"""Books of a playlist: one response has all of them, and one commit reorders them."""
