"""Deleting many records: counted, with a sample, and started once their number was typed."""

from time import perf_counter
from typing import Any

import msgspec

from keyhouse.auth import Caller
from keyhouse.http import Redirect
from keyhouse.service.pages import PageReply
from keyhouse.studio.catalog import SystemCatalog, record_of
from keyhouse.studio.job_work import UNDO_RECORDS_MAX, JobInput
from keyhouse.studio.jobs import Jobs
from keyhouse.studio.rendering import hidden_members
from keyhouse.studio.selection import (
    RecordSelection,
    SelectedRecords,
    SelectionCount,
    public_text,
)
from keyhouse.studio.space_size import COUNT_SECONDS


class BulkQuery(RecordSelection, forbid_unknown_fields=True):
    """`all`: count all records, however long it takes."""

    all: bool = False


class BulkForm(msgspec.Struct, forbid_unknown_fields=True):
    """`count` is the number of records as it was typed."""

    count: str = ""


class BulkPage(msgspec.Struct, kw_only=True):
    """The records that a deletion would delete. `can_undo`: the journal keeps each record, so that
    it can be put back."""

    system: str
    engine: str
    space: str
    selection: RecordSelection
    text: str = ""
    query: dict[str, Any] = {}
    counted: SelectionCount = msgspec.field(default_factory=SelectionCount)
    can_undo: bool = False
    undo_max: int = UNDO_RECORDS_MAX
    has_hidden: bool = False
    error: str = ""


class Bulk:
    def __init__(self, catalog: SystemCatalog, jobs: Jobs) -> None:
        self._catalog = catalog
        self._jobs = jobs

    async def page(self, system: str, space: str, query: BulkQuery, caller: Caller) -> BulkPage:
        """Count what a deletion would delete, with a sample."""
        return await self._counted(system, space, _selection(query), whole=query.all)

    async def start(
        self, system: str, space: str, query: BulkQuery, form: BulkForm, caller: Caller
    ) -> PageReply | Redirect:
        """Start to delete records, once their number was typed."""
        selection = _selection(query)
        page = await self._counted(system, space, selection, whole=True)
        if not page.counted.count:
            page.error = "No record is selected: give a prefix, a filter or keys of records."
            return PageReply("bulk.html", page, status=400)
        if form.count.replace(",", "").strip() != str(page.counted.count):
            page.error = f"Type the number of records, {page.counted.count}, to confirm."
            return PageReply("bulk.html", page, status=400)
        about = public_text(self._catalog, self._catalog.system(system), space, selection)
        given = JobInput(system, space, selection, page.counted.count, about=about)
        return await self._jobs.submit("delete", given, caller)

    async def _counted(
        self, system: str, space: str, selection: RecordSelection, *, whole: bool
    ) -> BulkPage:
        served = self._catalog.system(system)
        stores = self._catalog.stores(served, space)
        page = BulkPage(
            system=system,
            engine=served.engine,
            space=space,
            selection=selection,
            text="" if selection.is_empty else selection.text,
            query=selection.query,
        )
        if selection.is_empty:
            return page
        deadline = float("inf") if whole else perf_counter() + COUNT_SECONDS
        records = SelectedRecords(self._catalog, served, space, selection, to_write=True)
        page.counted = await records.count(deadline)
        page.can_undo = page.counted.is_exact and page.counted.count <= UNDO_RECORDS_MAX
        page.has_hidden = any(
            hidden_members(record)
            for store in stores
            for record in (
                [record_of(store, selection.record)]
                if selection.record
                and selection.record in [each.name for each in store.schema.records]
                else store.schema.records
            )
        )
        return page


def _selection(given: RecordSelection) -> RecordSelection:
    return RecordSelection(given.prefix, given.record, given.q, given.by, given.k)
