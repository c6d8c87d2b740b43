"""The derived rows that are one record's alone, all together: a write puts or deletes them without a look at them."""

from collections.abc import Callable, Iterable
from typing import Any

from keyhouse.schema.derived import Derived, Keys
from keyhouse.schema.row_compiler import compiled


class OwnedRows:
    """Those of `derived` that are the record's own. Where all of them are plain, one function makes them."""

    __slots__ = ("_compiled", "_plain", "derived")

    def __init__(self, derived: Iterable[Derived]) -> None:
        self.derived = tuple(each for each in derived if each.strategy == "put")
        plain = [each.plain for each in self.derived if each.plain is not None]
        self._plain = plain if plain and len(plain) == len(self.derived) else None
        self._compiled: Callable[[Any], dict[str, Any] | None] | None = None

    def rows(self, record: Any, keys: Keys) -> dict[str, bytes]:
        """The keys of the rows that the record earns, each with its value."""
        if self._compiled is None and self._plain is not None:
            self._compiled = compiled(self._plain)
        if self._compiled is not None:
            try:
                if (found := self._compiled(record)) is not None:
                    return found
            except (ValueError, AttributeError):
                pass  # each by itself says what is to blame, or does without
        rows: dict[str, bytes] = {}
        for each in self.derived:
            rows |= each.rows(record, keys)
        return rows
