"""How Hypothesis runs here: no deadline (two cores share the work), and a failure prints what replays it.

`KEYHOUSE_SOAK` makes every law try twenty times as many examples.
"""

import os

from hypothesis import HealthCheck, settings

SOAK = 20 if os.environ.get("KEYHOUSE_SOAK") else 1

settings.register_profile(
    "keyhouse",
    deadline=None,
    print_blob=True,
    max_examples=100 * SOAK,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("keyhouse")
