"""An invented catalog, playlists and a robot, to try the service without a channel."""
