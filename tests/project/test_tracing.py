"""What the tests themselves cost: see `tests/conftest.py`."""

from coverage import Coverage


def test_what_is_no_test_of_the_core_is_not_traced() -> None:
    """In a worker a second tracer went on when the first was stopped, and all tests took two to three times as long."""
    assert Coverage.current() is None
