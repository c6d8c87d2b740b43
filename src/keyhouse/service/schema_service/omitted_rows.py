"""Rows left out of an answer because they do not decode: it names them, and they are logged."""

from typing import Any

from msgspec import UNSET, UnsetType

from keyhouse.service.operation_log import OperationLog
from keyhouse.service.schema_service.answers import UnreadableItem, unreadable_item
from keyhouse.service.schema_service.catalog import ServedDerived
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

    def items(
        self, operation: str, tenant: str, log: OperationLog | None
    ) -> list[UnreadableItem] | UnsetType:
        """Return the rows as an answer has them, and log a warning; unset if there is none."""
        if not self._by_key:
            return UNSET
        if log is not None:
            first = next(iter(self._by_key.values()))
            log.left_out(operation, tenant, len(self._by_key), first.error)
        return [unreadable_item(each, self._shown(key)) for key, each in self._by_key.items()]

    def _shown(self, key: str) -> str:
        """Return the key; that of an index row may hold private members, then its pattern."""
        if self._index is None or not self._index.row.private:
            return key
        template = self._index.row.template
        return key if template.split(key) is None else template.text
