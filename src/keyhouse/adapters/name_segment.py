"""Texts of other libraries as fields of keys: any text, of any length."""

import hashlib
from typing import Final

HASHED: Final = "~"
"""Starts every hashed name, and no other: a text that starts with it is hashed, too."""

NAME_BYTES_MAX: Final = 200
"""Longest name that is stored as it is: two of them fit into a key, even if they are escaped."""


def name_segment(text: str, *, bytes_max: int = NAME_BYTES_MAX) -> str:
    """Return the text, or its SHA-256 if it is empty, too long, or no text for a key."""
    data = text.encode(errors="surrogatepass")
    is_plain = 0 < len(data) <= bytes_max and not text.startswith(HASHED) and "\0" not in text
    if is_plain and not any("\ud800" <= character <= "\udfff" for character in text):
        return text
    return HASHED + hashlib.sha256(data).hexdigest()
