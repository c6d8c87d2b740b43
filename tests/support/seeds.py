"""The seed of a random test. The report of a failure has it in the command that replays it."""

import os
import secrets

DRAWN: list[int] = []
"""Seeds of the running test."""


def new_seed() -> int:
    """Return the number in TEST_SEED, or another one each time."""
    DRAWN.append(int(os.environ.get("TEST_SEED") or secrets.randbits(32)))
    return DRAWN[-1]
