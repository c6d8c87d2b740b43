"""The suite is in the package, where pytest explains a failed assert only when it is told to."""

import pytest

pytest.register_assert_rewrite("keyhouse.testing")
