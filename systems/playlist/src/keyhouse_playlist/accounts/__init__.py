"""Members of the channel: one-time codes, sessions, roles and blocked addresses."""
