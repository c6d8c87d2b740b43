"""A URL as it may be shown, in errors, on a screen, in a store: it holds no password, however badly it is spelled."""

import re
from typing import Final

__all__ = ["public_url"]

_FILES: Final = ("sqlite:", "rocksdb:", "memory:")
"""What follows is a path, which may hold an @ of its own and holds no user."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//)?")
_SECRET: Final = re.compile(
    r"([?&;#][^=&;#]*(?:user|pass|pwd|secret|token|key|auth|cred)[^=&;#]*=)[^&;#]*", re.IGNORECASE
)


def public_url(url: str) -> str:
    """Without user and password, and without the value of any parameter that sounds like one.

    A URL that is wrong is shown too, so nothing is taken for granted: whatever stands before the last @ goes, though it may
    be more than a password.
    """
    if url.startswith(_FILES):
        return url
    scheme = _SCHEME.match(url)
    start = scheme.end() if scheme is not None else 0
    return url[:start] + _SECRET.sub(r"\1…", url[start:].rpartition("@")[2])
