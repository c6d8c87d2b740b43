"""Saved playlists, and marathons of them."""
