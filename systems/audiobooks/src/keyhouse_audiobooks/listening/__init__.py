"""Places, playback, bookmarks, preferences and playlists of listeners."""
