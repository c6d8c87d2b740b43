"""Names that people give: no line breaks, and nothing that changes how the text around it is shown."""

import re
from typing import Final

from keyhouse.errors import RecordError

__all__ = ["CONTROLS", "checked_name", "without_controls"]

CONTROLS: Final = r"\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069"
"""Control characters, line separators, and controls of the direction of text, in a set of a regular
expression."""

_control = re.compile(f"[{CONTROLS}]")


def checked_name(name: str) -> str:
    """Return the name of a playlist, trimmed. Raises RecordError if it is blank or has control
    characters."""
    if not name.strip():
        raise RecordError("A playlist needs a name.", name=name)
    if _control.search(name):
        raise RecordError(
            "A name has no line breaks, no control characters, and none that reverse text.",
            name=name,
        )
    return name.strip()


def without_controls(name: str) -> str:
    """Return a name that another program gave, without control characters."""
    return _control.sub(" ", name)
