"""Names, titles and categories that people give: trimmed, then without line breaks and control
characters.

A name or category has nothing that changes how the text around it is shown. A title may mark its
direction. The names of users and playlists have a visible character, and compare in their normal
form: without case, width, ligatures and repeated spaces.
"""

import re
from typing import TypeVar

from keyhouse.errors import RecordError
from keyhouse.keys import normal
from keyhouse.normalization import (
    CONTROL_CHARACTERS,
    CONTROLS,
    account_name,
    has_controls,
    is_visible,
)
from keyhouse_playlist.limits import USERNAME_CHARS_MAX

__all__ = [
    "checked_categories",
    "checked_name",
    "checked_title",
    "checked_username",
    "comparable_name",
    "has_control_characters",
    "printable_title",
    "without_controls",
]

T = TypeVar("T")

_control = re.compile(f"[{CONTROLS}]")
_control_character = re.compile(f"[{CONTROL_CHARACTERS}]")


def comparable_name(name: str) -> str:
    """Return the name of a user or playlist in the form in which names compare, which is also that
    of its key."""
    return normal(name)


def checked_name(name: str) -> str:
    """Return the name of a playlist, trimmed. Raises RecordError if it has no visible character, or
    control characters."""
    name = name.strip()
    if not is_visible(name):
        raise RecordError("A playlist needs a name with a visible character.", name=name)
    if has_controls(name):
        raise RecordError(
            "A name has no line breaks, no control characters, and none that reverse text.",
            name=name,
        )
    return name


def checked_username(name: str) -> str:
    """Return the name of a user as it is shown, and to which codes are sent: forms that compare as
    equal, such as letters of full width, are one name. Raises ValueError if it is not one."""
    return account_name(name, USERNAME_CHARS_MAX)


def without_controls(name: str) -> str:
    """Return a name that another program gave, without control characters."""
    return _control.sub(" ", name)


def checked_title(title: T, *, video_id: str) -> T | str:
    """Return the title of an item, trimmed, if it has one. Raises RecordError if it has control
    characters."""
    if not isinstance(title, str):
        return title
    trimmed = title.strip()
    if has_control_characters(trimmed):
        raise RecordError(
            "A title has no line breaks and no control characters.", video_id=video_id, title=title
        )
    return trimmed


def checked_categories(categories: T, *, video_id: str) -> T | list[str]:
    """Return the categories of an item, trimmed and without blank ones, if it has some. Raises
    RecordError as for names."""
    if not isinstance(categories, list):
        return categories
    trimmed = [name for each in categories if (name := each.strip())]
    for each in trimmed:
        if has_controls(each):
            raise RecordError(
                "A category has no line breaks, no control characters, and none that reverse text.",
                video_id=video_id,
                category=each,
            )
    return trimmed


def has_control_characters(title: str) -> bool:
    return _control_character.search(title) is not None


def printable_title(title: str) -> str:
    """Return a title that another program gave, without control characters."""
    return _control_character.sub(" ", title)
