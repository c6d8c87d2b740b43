"""The channel: its robot, queue, pushes, events, plays and likes."""
