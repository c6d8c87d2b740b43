"""The table of write units in the guide of DynamoDB is what the emulation is asked to write."""

import pytest

from tests.docs.write_units import count, documented, table
from tests.support.engine_openers import OPENERS


@pytest.mark.extra
@pytest.mark.skipif("dynamodb" not in OPENERS, reason="this run leaves out DynamoDB")
def test_the_documented_write_units_are_those_that_are_counted() -> None:
    """`python -m tests.docs.write_units` writes the table."""
    assert documented() == table(count())
