"""Selected records: by a prefix of their keys, by a filter, or by their keys.

Exports and deletions of many take the same selection, so that what is counted, downloaded and
deleted is the same.
"""

from collections.abc import AsyncIterator
from time import perf_counter
from typing import Any, Final

import msgspec

from keyhouse.engine import Span
from keyhouse.errors import ScopeError, UsageError
from keyhouse.keys import check_key
from keyhouse.schema import KeyMatch
from keyhouse.store import Store
from keyhouse.studio.catalog import StudioSystem, SystemCatalog, is_writable, record_of
from keyhouse.studio.private_keys import KeyView
from keyhouse.studio.record_table import parse_filter
from keyhouse.studio.rendering import MASK

SAMPLE_RECORDS: Final = 20
_LOOKED_AT: Final = 256
"""Records after which a count looks at the time."""


class RecordSelection(msgspec.Struct, forbid_unknown_fields=True):
    """`k` are keys of records, each once; else `record` with the filter `q` and `by`; else
    `prefix`."""

    prefix: str = ""
    record: str = ""
    q: str = ""
    by: str = ""
    k: list[str] = []

    def __post_init__(self) -> None:
        self.k = list(dict.fromkeys(self.k))

    @property
    def is_empty(self) -> bool:
        return not (self.prefix or self.record or self.k)

    @property
    def text(self) -> str:
        """The selection in words, for a page and the journal."""
        if self.k:
            return f"{len(self.k)} selected"
        if self.record:
            return f"{self.record} {self.q}".strip()
        return f"keys from {self.prefix}" if self.prefix else ""

    @property
    def query(self) -> dict[str, Any]:
        """The selection as parameters of a page."""
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}


def public_text(
    catalog: SystemCatalog, system: StudioSystem, space: str, selection: RecordSelection
) -> str:
    """Return a selection in words that every operator may read, in the journal and in the log of a
    job: without the values of private members."""
    try:
        view = KeyView(catalog.stores(system, space))
        SelectedRecords(catalog, system, space, selection, view)
    except (ScopeError, UsageError):
        return f"{selection.record or 'keys from'} {MASK}"
    return selection.text


class SelectionCount(msgspec.Struct):
    """`count` records, of which `sample` are the first. `is_exact` is false if counting was cut
    off."""

    count: int = 0
    is_exact: bool = True
    sample: list[str] = []


class SelectedRecords:
    """The records of a selection in one space; `to_write`: only those that people may write, with
    `view` only those whose keys it shows.

    Raises UsageError for a filter that no key serves, and for a key that is not of a record.
    """

    def __init__(
        self,
        catalog: SystemCatalog,
        system: StudioSystem,
        space: str,
        selection: RecordSelection,
        view: KeyView | None = None,
        *,
        to_write: bool = False,
    ) -> None:
        if selection.is_empty:
            raise UsageError("Select records: give a prefix, a record, or keys.")
        self._catalog = catalog
        self._system = system
        self._space = space
        self._selection = selection
        self._to_write = to_write
        self._stores = catalog.stores(system, space)
        if view is not None:
            view.check(selection.prefix, *selection.k)
        self._view = view
        self._keys = [self._selected(key) for key in selection.k]
        if selection.record and not selection.k:
            store = catalog.store(system, space, selection.record)
            self._record = record_of(store, selection.record)
            if to_write and not is_writable(store, self._record):
                raise UsageError(
                    "Events of a log, and rows of the store itself, are not written here.",
                    record=selection.record,
                )
            if view is not None:
                view.check_record(self._record)
            self._stores = [store]
            self._filter = parse_filter(store, self._record, selection.q, selection.by, view)

    async def records(self) -> AsyncIterator[tuple[Store, str]]:
        """Yield the key of each record, with its store."""
        if self._keys:
            for selected in self._keys:
                yield selected
        elif self._selection.record:
            [store] = self._stores
            entries = store.scan(
                self._record,
                by=self._filter.by,
                prefix=self._filter.prefix,
                between=self._filter.between,
                unreadable="skip",
                **self._filter.fields,
            )
            async for entry in entries:
                yield store, entry.key
        else:
            for store in self._stores:
                span = Span.prefix(self._selection.prefix)
                async for row in store.row_scan(span, keys_only=True):
                    if self._is_selected(store, row.key, store.schema.find(row.key)):
                        yield store, row.key

    def _selected(self, key: str) -> tuple[Store, str]:
        check_key(key)
        store, match = self._catalog.find(self._system, self._space, key)
        if not self._is_selected(store, key, match):
            raise UsageError("The key is not that of a record.", key=key)
        return store, key

    def _is_selected(self, store: Store, key: str, match: KeyMatch | None) -> bool:
        return (
            match is not None
            and match.is_record
            and (self._view is None or self._view.key(key) == key)
            and (not self._to_write or is_writable(store, match.record.declared))
        )

    async def count(self, deadline: float) -> SelectionCount:
        """Count the records, until `perf_counter()` passes the deadline."""
        counted = SelectionCount(sample=[])
        async for _, key in self.records():
            counted.count += 1
            if len(counted.sample) < SAMPLE_RECORDS:
                counted.sample.append(key)
            if counted.count % _LOOKED_AT == 0 and perf_counter() > deadline:
                counted.is_exact = False
                break
        return counted
