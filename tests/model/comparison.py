"""Comparison of the store's results with the oracle's."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from keyhouse.errors import KeyhouseError
from keyhouse.store import Entry
from tests.model.oracle import Refused, Stored


class Difference(AssertionError):
    """The store and its model differ."""


def same(answer: object, expected: object, what: str) -> None:
    if answer != expected:
        raise Difference(f"{what}: answered {answer!r}, expected {expected!r}")


def shown(entry: Entry[Any] | None) -> Any:
    """Return the record as plain JSON."""
    return None if entry is None else msgspec.to_builtins(entry.record)


async def agree(
    call: Callable[[], Awaitable[Any]],
    expected: Callable[[], Any],
    what: str,
    *,
    again: bool = False,
) -> None:
    """Check that both return the same, or both reject it. `again`: raise the rejection."""
    try:
        answer = await call()
    except KeyhouseError as error:
        try:
            expected()
        except Refused as refused:
            if type(error) not in refused.kinds:
                raise Difference(
                    f"{what}: refused with {error!r}, expected {refused.kinds}"
                ) from error
            if again:
                raise error from None
            return
        raise Difference(f"{what}: refused with {error!r}, expected to be done") from error
    try:
        should = expected()
    except Refused as refused:
        raise Difference(
            f"{what}: answered {answer!r}, expected to be refused with {refused.kinds}"
        ) from refused
    if isinstance(answer, Entry) and isinstance(should, Stored):
        same((shown(answer), answer.expires), (should.value, should.expires), what)
    elif not isinstance(should, Stored):
        same(answer, should, what)
