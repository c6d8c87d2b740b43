"""The length of random tests and fault runs.

`KEYHOUSE_SOAK` is a percentage of a release's length, and never shorter than an everyday run.
"""

import os
import re

import pytest

SOAK = os.environ.get("KEYHOUSE_SOAK", "")
if SOAK and not re.fullmatch(r"[1-9]\d{0,3}", SOAK):
    raise pytest.UsageError(
        f"KEYHOUSE_SOAK is a percentage of a release's length, such as 100, and not {SOAK!r}."
    )


def size(everyday: int, release: int) -> int:
    """Return the number of iterations of this run."""
    return max(everyday, release * int(SOAK) // 100) if SOAK else everyday
