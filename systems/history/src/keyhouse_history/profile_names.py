"""Names of profiles: those that a token can name, and a URL can address."""

import re
from typing import Final

from keyhouse.keys import TextSegment

__all__ = ["PROFILE_PATTERN", "ProfileName"]

PROFILE_PATTERN: Final = r"(?!\.{1,2}\Z)[^\x00-\x1f\x7f-\x9f\ud800-\udfff]{1,128}"

_matches = re.compile(PROFILE_PATTERN).fullmatch


class ProfileName(TextSegment):
    """Text of 1 to 128 characters without control characters; `.` and `..` are not names."""

    description = "text of 1 to 128 characters without control characters"

    def format(self, value: object) -> str:
        if not isinstance(value, str) or not _matches(value):
            raise ValueError(
                'must be a profile of 1 to 128 characters, no control characters, not "." or ".."'
            )
        return super().format(value)
