"""The cost of the tests themselves: see `conftest.py`."""

from coverage import Coverage


def test_tests_outside_the_core_are_not_traced() -> None:
    """A second tracer in a worker kept running, and all tests took two to three times as long."""
    assert Coverage.current() is None
