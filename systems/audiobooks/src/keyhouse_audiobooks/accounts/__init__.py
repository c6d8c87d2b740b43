"""Users, sessions, API keys, roles and permissions."""
