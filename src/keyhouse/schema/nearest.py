"""Names that were probably meant, for errors about names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = ["nearest"]


def nearest(name: str, known: Iterable[str]) -> dict[str, object]:
    """Return the known name that is most like this one, as a field of an error; else nothing."""
    found = get_close_matches(name, list(known), 1)
    return {"nearest": found[0]} if found else {}
