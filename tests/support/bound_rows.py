"""The bound form of a derived row, for tests of what it derives."""

from typing import Any

from keyhouse.schema import Derived, Record


def bound(record: Record[Any], row: Derived) -> Any:
    """Return a derived row of a record, with no field of its key fixed."""
    return dict(record.unbound.forms())[row]
