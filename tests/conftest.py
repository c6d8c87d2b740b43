"""How Hypothesis runs here: no deadline (two cores share the work), and a failure prints what replays it.

`KEYHOUSE_SOAK` makes every law try twenty times as many examples. The conformance suite is in the package, where pytest
explains a failed assert only when it is told to, before anything imports it.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("keyhouse.testing")

SOAK = 20 if os.environ.get("KEYHOUSE_SOAK") else 1

settings.register_profile(
    "keyhouse",
    deadline=None,
    print_blob=True,
    max_examples=100 * SOAK,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("keyhouse")
