"""The suite is in the package, where pytest explains a failed assert only when it is told to.

Tests of an engine that is not chosen (see `openers`) are not collected: they would start its server.
"""

import pytest

pytest.register_assert_rewrite("keyhouse.testing")

from tests.engines.openers import ALL, OPENERS  # noqa: E402  # imports what has just been registered

_OWN = {"postgres": ["test_postgres*.py", "test_sql_layouts.py"]}

collect_ignore_glob = [
    pattern for name in ALL if name not in OPENERS for pattern in _OWN.get(name, [f"test_{name}*.py"])
]
