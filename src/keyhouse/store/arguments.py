"""Checks of arguments that every store takes: one on an engine, and one behind a service."""

from collections.abc import Mapping
from typing import Any, Final

from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.limits import PAGE_ROWS_MAX
from keyhouse.schema import BoundIndex, BoundRecord

__all__ = ["ENDED", "check_expect", "check_page_limit", "lookup_key"]

ENDED: Final = (
    "The transaction has ended, and would not write this: write within the function or the block"
    " that it was given to."
)
"""Why a transaction takes no write."""


def check_expect(expect: object) -> None:
    """Raise UsageError for a precondition that no record can meet, such as a text."""
    if expect is not None and type(expect) is not int:
        raise UsageError(
            "`expect` is the revision of an entry, a whole number, or None: that there is no such"
            " record.",
            expect=expect,
        )


def check_page_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= PAGE_ROWS_MAX:
        raise UsageError("A page has 1 to 10,000 rows.", limit=limit, most=PAGE_ROWS_MAX)


def lookup_key(bound: BoundRecord[Any], index: BoundIndex, fields: Mapping[str, Any]) -> str:
    """Return the key of the row that a lookup follows."""
    try:
        return index.template.build(fields)
    except KeyFieldError:
        if index.has_one_holder:
            raise
        raise UsageError(
            "A lookup follows a Unique or First row to its one record: list the records of an"
            " Index with `scan(record, by=…)`.",
            record=bound.name,
            index=index.template.text,
        ) from None
