"""Editing one record: form or text, a preview of the real Batch, and a save that expects the revision
that was read.

Private and sealed members are not in the form; they stay as they are stored.
"""

from typing import Any, Final, Literal

import msgspec

from keyhouse.auth import Caller
from keyhouse.engine import Row
from keyhouse.errors import (
    DocumentError,
    KeyhouseError,
    NotFoundError,
    RecordError,
    RevisionError,
    UsageError,
)
from keyhouse.http import HtmlPage, Redirect
from keyhouse.schema import KeyMatch, Record
from keyhouse.store import ANY, Store, Unset
from keyhouse.studio.catalog import StudioSystem, SystemCatalog
from keyhouse.studio.edit_form import FormField, document_of, form_fields
from keyhouse.studio.journal import Journal
from keyhouse.studio.key_page import is_editable
from keyhouse.studio.page_routes import PageRoutes, require_unlocked
from keyhouse.studio.rendering import MASK, hidden_members, masked, pretty, studio_path
from keyhouse.studio.settings import WRITE

ABSENT: Final = "absent"
"""The expected revision of a record that is to be created."""

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


class EditQuery(msgspec.Struct, forbid_unknown_fields=True):
    k: str
    mode: Literal["form", "text"] = "form"


class EditForm(msgspec.Struct, forbid_unknown_fields=True):
    """`text`, or three lists of the same length: `member`, `kind` and `value`."""

    k: str
    revision: str
    action: Literal["preview", "save", "delete"]
    mode: Literal["form", "text"] = "text"
    text: str = ""
    member: list[str] = []
    kind: list[str] = []
    value: list[str] = []
    ttl: int | None = None


class RowDifference(msgspec.Struct):
    """A row that a save writes. None: absent."""

    key: str
    action: str
    before: str | None
    after: str | None


class Preview(msgspec.Struct):
    """The Batch that a save commits now."""

    checks: list[str]
    puts: list[str]
    deletes: list[str]
    adds: list[str]
    rows: list[RowDifference]


class EditPage(msgspec.Struct, kw_only=True):
    """`revision` is the one that a save expects. `stored` is set if another writer was first."""

    system: str
    engine: str
    space: str
    key: str
    record: str
    exists: bool
    revision: str
    mode: str
    text: str
    fields: list[FormField]
    hidden: list[str]
    takes_ttl: bool
    ttl: int | None = None
    preview: Preview | None = None
    error: str = ""
    stored: str | None = None


class Edit:
    def __init__(self, catalog: SystemCatalog, journal: Journal, pages: PageRoutes) -> None:
        self._catalog = catalog
        self._journal = journal
        self._pages = pages

    async def page(self, system: str, space: str, query: EditQuery, caller: Caller) -> EditPage:
        """The form of one record."""
        found, store, match = self._editable(system, space, query.k)
        row = await store.row(query.k)
        return _edit_page(found, store, match, query.k, row, mode=query.mode)

    async def submit(
        self, system: str, space: str, form: EditForm, caller: Caller
    ) -> HtmlPage | Redirect:
        """Preview, save or delete."""
        if form.action != "preview":
            require_unlocked(caller, WRITE)
        found, store, match = self._editable(system, space, form.k)
        row = await store.row(form.k)
        page = _edit_page(found, store, match, form.k, row, mode=form.mode)
        page.revision, page.ttl = form.revision, form.ttl
        here = studio_path(system, space, "edit", k=form.k)
        try:
            text = b"" if form.action == "delete" else _submitted(page, form)
            page.text = pretty(text)[0] if text else page.text
            change = _Change(store, match, row, form, text)
            if form.action == "preview":
                page.preview = await change.preview()
            else:
                await self._write(found, change, caller)
                return Redirect(studio_path(system, space, "key", k=form.k))
        except RevisionError as error:
            page.error = "Another writer was first. Below are the stored value and yours."
            page.stored = "absent" if row is None else _shown(match, row.value)
            page.revision = ABSENT if row is None else str(row.revision)
            return self._pages.render("edit.html", caller, page, here=here, status=error.status)
        except (RecordError, DocumentError, UsageError) as error:
            page.error = f"{error.sentence} {error.fields.get('reason', '')}".strip()
            return self._pages.render("edit.html", caller, page, here=here, status=error.status)
        return self._pages.render("edit.html", caller, page, here=here)

    async def undo(self, form: "UndoForm", caller: Caller) -> Redirect:
        """Put a record back as it was before a change, if nobody has changed it since."""
        line = await self._journal.line(form.id)
        if line is None or line.action not in ("save", "delete", "undo") or not line.key:
            raise NotFoundError("The journal has no such change.", id=form.id)
        if line.revision is None or (line.before is None and line.after is None):
            raise UsageError("The journal does not have the value as it was: it is too large.")
        found, store, match = self._editable(line.system, line.space, line.key)
        expect = ABSENT if line.after is None else str(line.revision)
        back = EditForm(
            k=line.key,
            revision=expect,
            action="delete" if line.before is None else "save",
        )
        text = b"" if line.before is None else line.before.encode()
        change = _Change(store, match, await store.row(line.key), back, text, is_stored=True)
        await self._write(found, change, caller, action="undo")
        return Redirect(studio_path(line.system, line.space, "key", k=line.key))

    async def _write(
        self, system: StudioSystem, change: "_Change", caller: Caller, action: str = ""
    ) -> None:
        """Commit a change. The journal has it before, so that no change is without a line."""
        line = await self._journal.begin(
            caller.tenant,
            action or change.form.action,
            system=system.name,
            space=change.store.space,
            key=change.form.k,
            before=change.stored_text,
            revision_before=None if change.row is None else change.row.revision,
        )
        try:
            revision, after = await change.commit()
        except KeyhouseError:
            await self._journal.drop(line)
            raise
        await self._journal.complete(line, revision, after)

    def _editable(self, system: str, space: str, key: str) -> tuple[StudioSystem, Store, KeyMatch]:
        found = self._catalog.system(system)
        store, match = self._catalog.find(found, space, key)
        if match is None or not is_editable(store, match):
            raise UsageError("Only records can be edited, by the key of the record.", key=key)
        return found, store, match


class UndoForm(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class _Change:
    """A put or delete of one record that expects a revision."""

    def __init__(
        self,
        store: Store,
        match: KeyMatch,
        row: Row | None,
        form: EditForm,
        text: bytes,
        *,
        is_stored: bool = False,
    ) -> None:
        self.store = store
        self.row = row
        self.form = form
        self._match = match
        self._record: Record[Any] = store.binding.original(match.record)
        self._text = text
        self._is_stored = is_stored

    @property
    def stored_text(self) -> str | None:
        return None if self.row is None else self.row.value.decode(errors="backslashreplace")

    async def preview(self) -> Preview:
        """Return the Batch of this change, without committing it."""
        async with self.store.transaction() as tx:
            await self._apply(tx)
            batch = tx.batch()
            changes = await tx.changes()
            tx.discard()
        by_key = {each.key: (each.before, each.after) for each in changes}
        return Preview(
            checks=[
                f"{check.key} " + (ABSENT if check.revision is None else f"at {check.revision}")
                for check in batch.checks
            ],
            puts=[put.key for put in batch.puts],
            deletes=list(batch.deletes),
            adds=[f"{add.key} {add.by:+d}" for add in batch.adds],
            rows=[
                RowDifference(
                    key,
                    "put" if after is not None else "delete",
                    self._image(key, before),
                    self._image(key, after),
                )
                for key, (before, after) in by_key.items()
                if before != after
            ],
        )

    async def commit(self) -> tuple[int, str | None]:
        """Commit, and return the revision and the record's new row."""
        async with self.store.transaction() as tx:
            await self._apply(tx)
        row = await self.store.row(self.form.k)
        if row is None or self.form.action == "delete":
            return tx.revision, None
        return tx.revision, row.value.decode(errors="backslashreplace")

    async def _apply(self, tx: Any) -> None:
        fields = self._match.fields
        if self.form.action == "delete":
            if not await tx.delete(self._record, expect=self._expected(), **fields):
                raise NotFoundError("The record does not exist.", key=self.form.k)
            return
        value = self._value()
        ttl = self.form.ttl if self.form.ttl is not None else self._ttl_left()
        await tx.put(self._record, value, ttl=ttl, expect=self._expected(), **fields)

    def _value(self) -> Any:
        if self._is_stored:
            return self._match.record.decode(self._text, self.form.k)
        hidden = hidden_members(self._record)
        text = self._text
        if hidden and self.row is not None:
            opened = self._record.plain(self._match.record.decode(self.row.value, self.form.k))
            given = _RAW.decode(text)
            kept = {
                name: msgspec.Raw(msgspec.json.encode(opened[name]))
                for name in hidden
                if name in opened and bytes(given.get(name, _MASKED)) == bytes(_MASKED)
            }
            text = msgspec.json.encode({**given, **kept})
        return self._record.parse(text)

    def _expected(self) -> int | Unset | None:
        if self.form.revision == ABSENT:
            return None
        if not self.form.revision.isdecimal():
            return ANY
        return int(self.form.revision)

    def _ttl_left(self) -> int | None:
        """Return the seconds that a record with a TTL still has."""
        expiry = self._record.expiry
        if expiry is None or expiry.mode != "write" or self.row is None or not self.row.expires:
            return None
        return max(1, (self.row.expires - self.store.engine.clock.now()) // 1_000)

    def _image(self, key: str, value: bytes | None) -> str | None:
        if value is None:
            return None
        return _shown(self._match, value) if key == self.form.k else value.decode(errors="replace")


_MASKED: Final = msgspec.Raw(msgspec.json.encode(MASK))


def _edit_page(
    system: StudioSystem, store: Store, match: KeyMatch, key: str, row: Row | None, *, mode: str
) -> EditPage:
    record: Record[Any] = match.record
    hidden = hidden_members(record)
    text = "{\n}" if row is None else pretty(_without(row.value, hidden))[0]
    fields = form_fields(record, None if row is None else row.value, match.fields, hidden)
    return EditPage(
        system=system.name,
        engine=system.engine,
        space=store.space,
        key=key,
        record=record.name,
        exists=row is not None,
        revision=ABSENT if row is None else str(row.revision),
        mode=mode if fields else "text",
        text=text,
        fields=fields,
        hidden=list(hidden),
        takes_ttl=record.expiry is not None and record.expiry.mode != "field",
    )


def _submitted(page: EditPage, form: EditForm) -> bytes:
    """Return the JSON of the form. Raises DocumentError with the place of an error."""
    if form.mode == "form" and form.member:
        text, page.fields = document_of(page.fields, form.member, form.kind, form.value)
        return text
    page.text = form.text
    try:
        msgspec.json.decode(form.text.encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise DocumentError("The text is not JSON.", reason=_place(form.text, error)) from None
    except UnicodeEncodeError:
        raise DocumentError("The text is not UTF-8.") from None
    return form.text.encode()


def _place(text: str, error: Exception) -> str:
    """Return the message of a parser with the line and column instead of the byte."""
    message, mark, byte = str(error).rpartition("(byte ")
    if not mark or not byte.rstrip(")").isdecimal():
        return str(error)
    before = text.encode()[: int(byte.rstrip(")"))].decode(errors="ignore")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"Line {line}, column {column}: {message.strip()}."


def _without(value: bytes, hidden: tuple[str, ...]) -> bytes:
    if not hidden:
        return value
    try:
        members = _RAW.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return value
    return msgspec.json.encode({k: v for k, v in members.items() if k not in hidden})


def _shown(match: KeyMatch, value: bytes) -> str:
    return pretty(masked(value, hidden_members(match.record)))[0]
