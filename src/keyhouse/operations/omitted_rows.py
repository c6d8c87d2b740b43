"""Rows left out of an answer because they do not decode: it names them, and they are logged."""

from typing import Any

from msgspec import UNSET, UnsetType

from keyhouse.operations.catalog import ServedDerived
from keyhouse.operations.replies import UnreadableItem, unreadable_item
from keyhouse.operations.space import ServedSpace
from keyhouse.store import UnreadableRow

__all__ = ["OmittedRows"]


class OmittedRows:
    """The unreadable rows of one answer, by key: there are no more of them than rows were read."""

    __slots__ = ("_by_key", "_index")

    def __init__(self, index: ServedDerived[Any] | None = None) -> None:
        self._index = index
        self._by_key: dict[str, UnreadableRow] = {}

    def __bool__(self) -> bool:
        return bool(self._by_key)

    def add(self, unreadable: UnreadableRow) -> None:
        self._by_key[unreadable.row.key] = unreadable

    def items(self, operation: str, space: ServedSpace) -> list[UnreadableItem] | UnsetType:
        """Return the rows as an answer has them, and log a warning; unset if there is none."""
        if not self._by_key:
            return UNSET
        space.left_out(operation, [*self._by_key.values()])
        return [unreadable_item(each, self._shown(key)) for key, each in self._by_key.items()]

    def _shown(self, key: str) -> str:
        """Return the key; that of an index row may hold private members, then its pattern."""
        if self._index is None or not self._index.private:
            return key
        template = self._index.row.template
        return key if template.split(key) is None else template.text
