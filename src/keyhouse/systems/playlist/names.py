"""Names, titles and categories that people give: no line breaks, and no control characters.

A name or category has nothing that changes how the text around it is shown. A title may mark its
direction.
"""

import re
from typing import Final, TypeVar

from keyhouse.errors import RecordError

__all__ = [
    "CONTROLS",
    "CONTROL_CHARACTERS",
    "checked_categories",
    "checked_name",
    "checked_title",
    "has_control_characters",
    "has_controls",
    "printable_title",
    "without_controls",
]

T = TypeVar("T")

CONTROL_CHARACTERS: Final = r"\x00-\x1f\x7f-\x9f"
"""In a set of a regular expression."""
CONTROLS: Final = CONTROL_CHARACTERS + r"\u2028-\u202e\u2066-\u2069"
"""Control characters, line separators, and controls of the direction of text, in a set of a regular
expression."""

_control = re.compile(f"[{CONTROLS}]")
_control_character = re.compile(f"[{CONTROL_CHARACTERS}]")


def checked_name(name: str) -> str:
    """Return the name of a playlist, trimmed. Raises RecordError if it is blank or has control
    characters."""
    if not name.strip():
        raise RecordError("A playlist needs a name.", name=name)
    if has_controls(name):
        raise RecordError(
            "A name has no line breaks, no control characters, and none that reverse text.",
            name=name,
        )
    return name.strip()


def without_controls(name: str) -> str:
    """Return a name that another program gave, without control characters."""
    return _control.sub(" ", name)


def checked_title(title: T, *, video_id: str) -> T:
    """Return the title of an item, if it has one. Raises RecordError if it has control
    characters."""
    if isinstance(title, str) and has_control_characters(title):
        raise RecordError(
            "A title has no line breaks and no control characters.", video_id=video_id, title=title
        )
    return title


def checked_categories(categories: T, *, video_id: str) -> T:
    """Return the categories of an item, if it has some. Raises RecordError as for names."""
    for each in categories if isinstance(categories, list) else ():
        if has_controls(each):
            raise RecordError(
                "A category has no line breaks, no control characters, and none that reverse text.",
                video_id=video_id,
                category=each,
            )
    return categories


def has_controls(name: str) -> bool:
    return _control.search(name) is not None


def has_control_characters(title: str) -> bool:
    return _control_character.search(title) is not None


def printable_title(title: str) -> str:
    """Return a title that another program gave, without control characters."""
    return _control_character.sub(" ", title)
