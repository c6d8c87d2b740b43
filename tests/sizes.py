"""The length of random tests and fault runs: in `make test`, in `make test-all`, and in a soak.

`TEST_TIER=all` selects the second. `TEST_SOAK` is a percentage of a release's length, and
never shorter than `make test-all`.
"""

import os
import re

import pytest

SOAK = os.environ.get("TEST_SOAK", "")
if SOAK and not re.fullmatch(r"[1-9]\d{0,3}", SOAK):
    raise pytest.UsageError(
        f"TEST_SOAK is a percentage of a release's length, such as 100, and not {SOAK!r}."
    )
TESTS = os.environ.get("TEST_TIER") or "usual"
if TESTS not in {"usual", "all"}:
    raise pytest.UsageError(f"TEST_TIER is all or usual, and not {TESTS!r}.")


def size(usual: int, everything: int, release: int) -> int:
    """Return the number of iterations of this run."""
    if SOAK:
        return max(everything, release * int(SOAK) // 100)
    return everything if TESTS == "all" else usual
