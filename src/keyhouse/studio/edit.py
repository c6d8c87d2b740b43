"""Editing one record: form or text, a preview of the real Batch, and a save that expects the
revision that was read.

Private and sealed members are not in the form; they stay as they are stored.
"""

from typing import Literal

import msgspec

from keyhouse.auth import Caller
from keyhouse.engine import Row
from keyhouse.errors import (
    DocumentError,
    KeyhouseError,
    LinkError,
    NotFoundError,
    RevisionError,
    ScopeError,
    UniqueError,
    UsageError,
)
from keyhouse.http import Redirect
from keyhouse.schema import KeyMatch
from keyhouse.service.pages import PageReply
from keyhouse.store import Store
from keyhouse.studio.catalog import StudioSystem, SystemCatalog
from keyhouse.studio.change import (
    ABSENT,
    UNDOABLE,
    Changes,
    Preview,
    RecordChange,
    members_set,
)
from keyhouse.studio.edit_form import FormField, document_of, form_fields, keep_values
from keyhouse.studio.journal import Journal
from keyhouse.studio.login import Login
from keyhouse.studio.page_routes import require_unlocked
from keyhouse.studio.private_keys import KeyView
from keyhouse.studio.rendering import hidden_members, masked, pretty, studio_path
from keyhouse.studio.settings import ADMIN, WRITE

_TTL_DIGITS_MAX = 10
_REVISION_DIGITS_MAX = 20

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])


class EditQuery(msgspec.Struct, forbid_unknown_fields=True):
    k: str
    mode: Literal["form", "text"] = "form"


class EditForm(msgspec.Struct, forbid_unknown_fields=True):
    """`text`, or three lists of the same length: `member`, `kind` and `value`."""

    revision: str
    action: Literal["preview", "preview-delete", "save", "delete", "unlock", "lock"]
    text: str = ""
    member: list[str] = []
    kind: list[str] = []
    value: list[str] = []
    ttl: str = ""
    never_expires: bool = False


class UndoForm(msgspec.Struct, forbid_unknown_fields=True):
    id: str


class EditPage(msgspec.Struct, kw_only=True):
    """`revision` is the one that a save expects. `stored` is set if another writer was first.
    `may_never_expire`: the record need not expire."""

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
    may_never_expire: bool
    ttl: str = ""
    never_expires: bool = False
    preview: Preview | None = None
    is_deletion: bool = False
    error: str = ""
    stored: str | None = None


class Edit:
    def __init__(
        self, catalog: SystemCatalog, journal: Journal, changes: Changes, login: Login
    ) -> None:
        self._catalog = catalog
        self._journal = journal
        self._changes = changes
        self._login = login

    async def page(self, system: str, space: str, query: EditQuery, caller: Caller) -> EditPage:
        """The form of one record."""
        served, store, match, _ = self._editable(system, space, query.k, caller)
        row = await store.row(query.k)
        return _edit_page(served, store, match, query.k, row, mode=query.mode)

    async def submit(
        self, system: str, space: str, query: EditQuery, form: EditForm, caller: Caller
    ) -> PageReply | Redirect:
        """Preview, save or delete. The page keeps typed text, also when edits are locked or
        unlocked."""
        served, store, match, view = self._editable(system, space, query.k, caller)
        row = await store.row(query.k)
        mode = "form" if form.member else "text"
        page = _edit_page(served, store, match, query.k, row, mode=mode)
        page.revision, page.ttl, page.never_expires = form.revision, form.ttl, form.never_expires
        page.is_deletion = form.action in ("delete", "preview-delete")
        _keep_typed(page, form)
        try:
            if form.action in ("lock", "unlock"):
                changed = await self._login.set_lock(caller, is_unlocked=form.action == "unlock")
                return PageReply("edit.html", page, caller=changed)
            if form.action in ("save", "delete"):
                require_unlocked(caller, WRITE)
            ttl = _ttl(form)
            text = None if page.is_deletion else _submitted(page, form)
            if text is not None and row is not None and ADMIN not in caller.scopes:
                _check_private(text, page.hidden)
            change = RecordChange(
                store,
                match,
                query.k,
                row,
                text,
                expect=_expected(form),
                ttl=ttl,
                never_expires=form.never_expires,
            )
            if form.action in ("save", "delete"):
                await self._changes.commit(caller.tenant, form.action, served.name, change)
                return Redirect(studio_path(system, space, "key", k=query.k))
            page.preview = await change.preview(view)
        except RevisionError as error:
            page.error = "Another writer was first. Below are the stored value and yours."
            page.stored = ABSENT if row is None else _shown(match, row.value)
            page.revision = ABSENT if row is None else str(row.revision)
            return PageReply("edit.html", page, error.status)
        except KeyhouseError as error:
            if error.status >= 500:
                raise
            page.error = _problem(error, view)
            return PageReply("edit.html", page, error.status)
        return PageReply("edit.html", page)

    def _editable(
        self, system: str, space: str, key: str, caller: Caller
    ) -> tuple[StudioSystem, Store, KeyMatch, KeyView]:
        served = self._catalog.system(system)
        view = KeyView(self._catalog.stores(served, space), caller)
        view.check(key)
        return *self._changes.editable(system, space, key), view

    async def undo(self, form: UndoForm, caller: Caller) -> Redirect:
        """Put a record back as it was before a change, if nobody has changed it since."""
        line = await self._journal.line(form.id)
        if line is None or line.action not in UNDOABLE or not line.key:
            raise NotFoundError("The journal has no such change.", id=form.id)
        try:
            await self._changes.undo(caller.tenant, line)
        except UniqueError as error:
            system = self._catalog.system(line.system)
            view = KeyView(self._catalog.stores(system, line.space), caller)
            raise UsageError(_problem(error, view)) from None
        return Redirect(studio_path(line.system, line.space, "key", k=line.key))


def _check_private(text: bytes, hidden: list[str]) -> None:
    """Raise ScopeError if the text has private members of a stored record: whether a value changes
    would tell what is stored."""
    given = members_set(text, hidden) if hidden else []
    if given:
        raise ScopeError(
            f"Only {ADMIN} may set private members. Remove from the text:",
            reason=", ".join(given),
        )


def _ttl(form: EditForm) -> int | None:
    """Return the seconds that were typed, or None."""
    typed = form.ttl.strip()
    if not typed:
        return None
    if form.never_expires:
        raise UsageError("Give seconds, or choose that the record never expires: not both.")
    if not (typed.isascii() and typed.isdecimal() and len(typed) <= _TTL_DIGITS_MAX):
        raise UsageError("The seconds until the record expires are a whole number.")
    return int(typed)


def _expected(form: EditForm) -> int | None:
    if form.revision == ABSENT:
        return None
    typed = form.revision
    if not (typed.isascii() and typed.isdecimal() and len(typed) <= _REVISION_DIGITS_MAX):
        raise UsageError("The form has no revision: load the page again.")
    return int(typed)


def _problem(error: KeyhouseError, view: KeyView) -> str:
    """Return the sentence of an error with the row or member that it is about."""
    names: tuple[str, ...] = ("reason", "field")
    if isinstance(error, LinkError):
        names = ("missing", "example")
    elif isinstance(error, UniqueError):
        names = ("key",)
    about = next((error.fields[name] for name in names if error.fields.get(name)), "")
    if isinstance(error, (LinkError, UniqueError)):
        about = view.key(str(about))
    return f"{error.sentence} {about}".strip()


def _edit_page(
    system: StudioSystem, store: Store, match: KeyMatch, key: str, row: Row | None, *, mode: str
) -> EditPage:
    record = match.record.declared
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
        may_never_expire=record.expiry is not None and record.expiry.mode == "write",
    )


def _keep_typed(page: EditPage, form: EditForm) -> None:
    """Show what was typed, valid or not."""
    if page.mode == "form":
        keep_values(page.fields, form.member, form.value)
    else:
        page.text = form.text.replace("\r\n", "\n")


def _submitted(page: EditPage, form: EditForm) -> bytes:
    """Return the JSON of the form. Raises DocumentError with the place of an error."""
    if page.mode == "form":
        text = document_of(page.fields, form.member, form.kind, form.value)
        page.text = pretty(text)[0]
        return text
    try:
        msgspec.json.decode(page.text.encode())
    except (msgspec.DecodeError, RecursionError) as error:
        raise DocumentError("The text is not JSON.", reason=_place(page.text, error)) from None
    except UnicodeEncodeError:
        raise DocumentError("The text is not UTF-8.") from None
    return page.text.encode()


def _place(text: str, error: Exception) -> str:
    """Return the message of a parser with the line and column instead of the byte."""
    message, mark, byte = str(error).rpartition("(byte ")
    encoded = text.encode()
    if mark and byte.rstrip(")").isdecimal():
        encoded = encoded[: int(byte.rstrip(")"))]
    elif isinstance(error, RecursionError):
        return str(error)
    else:
        message = str(error)  # the text ends too early
    before = encoded.decode(errors="ignore")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return f"Line {line}, column {column}: {message.strip()}."


def _without(value: bytes, hidden: tuple[str, ...]) -> bytes:
    if not hidden:
        return value
    try:
        members = _RAW.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return masked(value, hidden)
    return msgspec.json.encode({k: v for k, v in members.items() if k not in hidden})


def _shown(match: KeyMatch, value: bytes) -> str:
    """Return a stored value as the form has it."""
    return pretty(_without(value, hidden_members(match.record.declared)))[0]
