"""How Hypothesis runs here: no deadline (two cores share the work), and a failure prints what replays it.

A soak (`tests/soak.py`) makes every law try up to twenty times as many examples. The conformance suite is in the
package, where pytest explains a failed assert only when it is told to, before anything imports it.
"""

import pytest
from hypothesis import HealthCheck, settings

from tests.soak import size

pytest.register_assert_rewrite("keyhouse.testing")

settings.register_profile(
    "keyhouse",
    deadline=None,
    print_blob=True,
    max_examples=size(100, 2_000),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("keyhouse")
