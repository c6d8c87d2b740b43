"""How long random tests and fault runs are. `KEYHOUSE_SOAK` says it in percent of a release's length; without it, a run is
an everyday one, which no soak falls short of.
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
    """How many of something this run has."""
    return max(everyday, release * int(SOAK) // 100) if SOAK else everyday
