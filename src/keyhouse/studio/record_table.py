"""Records as a table, filtered by the fields of their keys and indexes.

The filter bar takes `book author=lem tag:sci* year>=1960 year<1970`: a record, which may be left
out, and fields of its key or of one of its indexes. Fields with `=` come first in that key; one
more may be narrowed by a prefix or a range.
"""

import re
import shlex
from contextlib import suppress
from typing import Any, Final

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.auth import Caller
from keyhouse.errors import UsageError
from keyhouse.http import Redirect
from keyhouse.keys import Template
from keyhouse.schema import Index, Record
from keyhouse.schema.index_names import index_name
from keyhouse.store import Store
from keyhouse.studio.catalog import StudioSystem, SystemCatalog, is_writable, record_of
from keyhouse.studio.private_keys import KeyView, private_error, private_fields
from keyhouse.studio.rendering import MASK, hidden_members, record_name, record_path

ROWS_PAGE: Final = 50
CELL_CHARS_MAX: Final = 200

_TERM = re.compile(r"([A-Za-z_]\w*)(>=|<|=|:)(.*)", re.DOTALL)
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])


class RecordQuery(msgspec.Struct, forbid_unknown_fields=True):
    """`fields` are the other parameters, such as `author=lem`: fields of the filter."""

    q: str = ""
    by: str = ""
    cursor: str = ""
    reverse: bool = False
    fields: dict[str, str] = {}


class TableRow(msgspec.Struct):
    """One record. Cells are the stored JSON of its members, as text."""

    key: str
    revision: int
    expires: int | None
    cells: list[str]


class KeyChoice(msgspec.Struct):
    """A key by which records can be filtered: their own, or that of an index."""

    name: str
    kind: str
    key: str
    fields: list[str]


class TablePage(msgspec.Struct, kw_only=True):
    system: str
    engine: str
    space: str
    record: str
    kind: str
    template: str
    q: str
    by: str
    reverse: bool
    columns: list[str]
    rows: list[TableRow]
    unreadable: list[str]
    choices: list[KeyChoice]
    cursor: str
    revision: int
    is_writable: bool
    error: str = ""


class Filter(msgspec.Struct):
    """A parsed filter: `by` is None for the record's own key."""

    by: Index | None = None
    fields: dict[str, Any] = {}
    prefix: str | None = None
    between: tuple[Any, Any] | None = None


class RecordTable:
    def __init__(self, catalog: SystemCatalog) -> None:
        self._catalog = catalog

    async def page(
        self, system: str, space: str, record: str, query: RecordQuery, caller: Caller
    ) -> TablePage:
        """List records as a table. A filter may begin with the name of a record: that of another
        one leads to its table."""
        served = self._catalog.system(system)
        name = record_name(record)
        await self._catalog.stored(served, space)
        store = self._catalog.store(served, space, name)
        declared = record_of(store, name)
        view = KeyView([store], caller)
        view.check_record(declared)
        text = _with_fields(store, declared, query, view)
        named, rest = self._named(served, space, text)
        if named and named != name:
            return Redirect(record_path(system, space, named, q=rest))  # type: ignore[return-value]
        query.q = rest
        page = self._empty(served, store, declared, query, view)
        try:
            chosen = parse_filter(store, declared, query.q, query.by, view)
        except UsageError as error:
            page.error = f"{error.sentence} {_hint(error)}".strip()
            return page
        read = await store.page(
            declared,
            by=chosen.by,
            limit=ROWS_PAGE,
            cursor=query.cursor or None,
            reverse=query.reverse,
            prefix=chosen.prefix,
            between=chosen.between,
            unreadable="skip",
            **chosen.fields,
        )
        stored = await store.rows([entry.key for entry in read.entries])
        hidden = hidden_members(declared)
        page.rows = [
            TableRow(row.key, row.revision, row.expires, cells(row.value, page.columns, hidden))
            for row in stored
            if row is not None
        ]
        page.unreadable = [each.row.key for each in read.unreadable]
        page.cursor, page.revision = read.cursor or "", read.revision
        return page

    def _named(self, system: StudioSystem, space: str, text: str) -> tuple[str, str]:
        """Split a filter into the name of a record, or nothing, and the rest."""
        first, _, rest = text.strip().partition(" ")
        names = (
            each.name
            for store in self._catalog.stores(system, space)
            for each in store.schema.records
        )
        return (first, rest.strip()) if first in names else ("", text)

    def _empty(
        self,
        system: StudioSystem,
        store: Store,
        record: Record[Any],
        query: RecordQuery,
        view: KeyView,
    ) -> TablePage:
        return TablePage(
            system=system.name,
            engine=system.engine,
            space=store.space,
            record=record.name,
            kind=record.kind,
            template=store.schema.unbound.record(record).template.text,
            q=query.q,
            by=query.by,
            reverse=query.reverse,
            columns=columns(record),
            rows=[],
            unreadable=[],
            choices=[
                KeyChoice(name, kind, template.text, list(template.fields))
                for name, kind, _, template in _choices(store, record, view)
            ],
            cursor="",
            revision=0,
            is_writable=is_writable(store, record),
        )


def columns(record: Record[Any]) -> list[str]:
    """Return the members of the record's Struct; one column for any other value."""
    if not record.json.is_struct:
        return ["value"]
    return [
        field.encode_name
        for field in msgspec.structs.fields(record.type)
        if field.name != record.unknown
    ]


def cells(value: bytes, names: list[str], hidden: tuple[str, ...]) -> list[str]:
    """Return the members of a stored value as text, exactly as they are stored."""
    if names == ["value"] and not hidden:
        return [_cut(value.decode(errors="backslashreplace"))]
    try:
        members = _MEMBERS.decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = MASK if hidden else _cut(value.decode(errors="backslashreplace"))
        return [text] + [""] * (len(names) - 1)
    return [
        MASK if name in hidden and name in members else _cut(_plain(members.get(name)))
        for name in names
    ]


def _plain(raw: msgspec.Raw | None) -> str:
    """Return a text without its quotes, anything else as it is stored."""
    if raw is None:
        return ""
    text = bytes(raw)
    return msgspec.json.decode(text, type=str) if text[:1] == b'"' else text.decode()


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS_MAX else f"{text[:CELL_CHARS_MAX]}…"


def parse_filter(
    store: Store, record: Record[Any], text: str, by: str, view: KeyView | None = None
) -> Filter:
    """Return the scan that a filter means. Raises UsageError if no key begins with its fields, and
    ScopeError for a key with private members that `view` does not show."""
    terms = _terms(text)
    exact = {name: value for name, mark, value in terms if mark == "="}
    narrowed = {name for name, mark, _ in terms if mark != "="}
    if len(narrowed) > 1:
        raise UsageError("Only one field can have a prefix or a range.", fields=sorted(narrowed))
    choices = _choices(store, record, view)
    if by and not any(_is_called(by, record, name, index) for name, _, index, _ in choices):
        others = _choices(store, record)
        if any(_is_called(by, record, name, index) for name, _, index, _ in others):
            raise private_error()
        raise UsageError("There is no such index.", **nearest(by, [name for name, *_ in choices]))
    for name, _, index, template in choices:
        if by and not _is_called(by, record, name, index):
            continue
        lead = template.fields[: len(exact)]
        following = template.fields[len(exact) : len(exact) + 1]
        if set(lead) == exact.keys() and narrowed <= set(following):
            return _filter(template, index, exact, terms)
    raise UsageError(
        "No key begins with these fields.",
        keys=[", ".join(template.fields) for *_, template in choices],
    )


def _with_fields(store: Store, record: Record[Any], query: RecordQuery, view: KeyView) -> str:
    """Return the filter with the fields that are given as parameters. Raises UsageError for a
    parameter that is not a field of a key."""
    choices = _choices(store, record, view)
    known = {field for *_, template in choices for field in template.fields}
    for name in query.fields:
        if name not in known:
            names = {*RecordQuery.__struct_fields__} - {"fields"} | known
            raise UsageError("Unknown parameter.", name=name, **nearest(name, names))
    terms = [shlex.quote(f"{name}={value}") for name, value in query.fields.items()]
    return " ".join([query.q, *terms]).strip() if terms else query.q


def _filter(
    template: Template,
    index: Index | None,
    exact: dict[str, str],
    terms: list[tuple[str, str, str]],
) -> Filter:
    chosen = Filter(index, {name: _value(template, name, text) for name, text in exact.items()})
    bounds: dict[str, Any] = {}
    for name, mark, text in terms:
        if mark == ":":
            chosen.prefix = text.removesuffix("*")
        elif mark != "=":
            bounds[mark] = _value(template, name, text)
    if bounds:
        chosen.between = (bounds.get(">="), bounds.get("<"))
    return chosen


def _terms(text: str) -> list[tuple[str, str, str]]:
    try:
        words = shlex.split(text)
    except ValueError:
        raise UsageError("A quote of the filter is not closed.") from None
    terms: list[tuple[str, str, str]] = []
    for word in words:
        match = _TERM.fullmatch(word)
        if match is None:
            raise UsageError("A filter is field=value, field:prefix*, field>=low or field<high.")
        terms.append((match[1], match[2], match[3]))
    return terms


def _value(template: Template, name: str, text: str) -> Any:
    """Return the value of a field from its text, as its segment takes it."""
    segment = template.segment(name)
    candidates: list[Any] = [text]
    if re.fullmatch(r"-?\d{1,19}", text):
        candidates.append(int(text))
    with suppress(ValueError):
        candidates.append(segment.parse(text))
    for candidate in candidates:
        try:
            segment.format(candidate)
        except (ValueError, TypeError, AttributeError):
            continue
        return candidate
    raise UsageError(
        "A field of the filter has another type.", field=name, type=segment.description
    )


def _is_called(by: str, record: Record[Any], name: str, index: Index | None) -> bool:
    """Return whether a parameter names this key: as its template starts, or as requests of a
    service name it."""
    return by == name or (index is not None and by == index_name(record, index))


def _choices(
    store: Store, record: Record[Any], view: KeyView | None = None
) -> list[tuple[str, str, Index | None, Template]]:
    """Return the keys by which records can be listed: name, kind, index and bound template. Only
    those without private members, unless `view` shows them."""
    own: list[tuple[str, str, Index | None, Template]] = [
        ("key", "key", None, store.binding.record(record).template)
    ]
    for derived in record.derived:
        if isinstance(derived, Index):
            if view and not view.sees_private and private_fields(record, derived):
                continue
            template = store.binding.index(record, derived)[1].template
            name = derived.name or derived.template.head.rstrip(":/|_.-") or derived.kind
            own.append((name, derived.kind, derived, template))
    return own


def _hint(error: UsageError) -> str:
    names = ("keys", "known", "fields")
    values: Any = next((error.fields[name] for name in names if name in error.fields), ())
    return "" if not values else f"Known: {'; '.join(map(str, values))}."
