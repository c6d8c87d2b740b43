"""People who sign in: sessions and their cookie, passwords, and the limits of guessing.

Every service with a login uses it: a service declares its session record, its cookie and one
setting for the lifetime, and decides who its users are. Nothing here knows a page or a route.
"""
