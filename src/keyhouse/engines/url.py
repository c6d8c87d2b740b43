"""Redacts URLs for errors, screens and stored records: no password remains, even if malformed."""

import re
from typing import Final

__all__ = ["public_url"]

_FILES: Final = ("sqlite:", "rocksdb:", "memory:")
"""Schemes followed by a path, which may contain an @ and has no user."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(//)?")
_SECRET: Final = re.compile(
    r"([?&;#][^=&;#]*(?:user|pass|pwd|secret|token|key|auth|cred)[^=&;#]*=)[^&;#]*", re.IGNORECASE
)


def public_url(url: str) -> str:
    """Return the URL without user, password and the values of parameters that look like secrets.

    The URL may be malformed: everything before the last @ is removed, even if it is more than
    credentials.
    """
    if url.startswith(_FILES):
        return url
    scheme = _SCHEME.match(url)
    start = scheme.end() if scheme is not None else 0
    return url[:start] + _SECRET.sub(r"\1…", url[start:].rpartition("@")[2])
