"""Indexes: rows that lead to a record by other fields than its key."""

from collections.abc import Callable, Mapping
from typing import Any

from keyhouse.advice.arguments import checked
from keyhouse.errors import (
    DeclarationError,
    DocumentError,
    KeyFieldError,
    UniqueError,
    UnreadableError,
)
from keyhouse.keys.compiler import compile_address
from keyhouse.keys.template import Template
from keyhouse.schema import document
from keyhouse.schema.compiled_rows import KeyValues, Source
from keyhouse.schema.derived import BoundDerived, Derived, RowPlace


class Index(Derived):
    """A row that leads to the record by other fields than its key. Its value is `1`, or a field:
    `value="id"`."""

    kind = "index"

    @checked(DeclarationError)
    def __init__(
        self,
        at: str | Template,
        *,
        value: str | None = None,
        fields: Mapping[str, Source] | None = None,
        each: Mapping[str, Source] | None = None,
        when: Callable[[Any], bool] | None = None,
        name: str | None = None,
        shown: bool = False,
    ) -> None:
        super().__init__(at, fields=fields, each=each, when=when, name=name, shown=shown)
        self.value = value

    def bind(self, place: RowPlace) -> "BoundIndex":
        return BoundIndex(self, place)

    def value_text(self) -> str:
        return f"`{1 if self.value is None else self.value}`"

    def carried(self) -> str | None:
        return self.value

    def value_sources(self) -> Mapping[str, Source]:
        return {}


class Unique(Index):
    """An index row that one record at most can have: a put of a second one raises UniqueError."""

    kind = "unique"

    @checked(DeclarationError)
    def __init__(
        self,
        at: str | Template,
        *,
        value: str,
        fields: Mapping[str, Source] | None = None,
        each: Mapping[str, Source] | None = None,
        when: Callable[[Any], bool] | None = None,
        name: str | None = None,
        shown: bool = False,
    ) -> None:
        super().__init__(
            at, value=value, fields=fields, each=each, when=when, name=name, shown=shown
        )

    def bind(self, place: RowPlace) -> "BoundUnique":
        return BoundUnique(self, place)


class First(Unique):
    """An index row that the first of several records holds; when it goes, the next one in `among`
    succeeds it.

    `among` is an index of the same record that lists all candidates: its template has the same
    leading fields.
    """

    kind = "first"
    needs_others = True

    @checked(DeclarationError)
    def __init__(
        self,
        at: str | Template,
        *,
        value: str,
        among: Index,
        fields: Mapping[str, Source] | None = None,
        each: Mapping[str, Source] | None = None,
        when: Callable[[Any], bool] | None = None,
        name: str | None = None,
        shown: bool = False,
    ) -> None:
        super().__init__(
            at, value=value, fields=fields, each=each, when=when, name=name, shown=shown
        )
        self.among = among

    def bind(self, place: RowPlace) -> "BoundFirst":
        return BoundFirst(self, place)

    def value_text(self) -> str:
        return f"{super().value_text()} of the first record"


class BoundIndex(BoundDerived):
    """See Index."""

    declared: Index

    def __init__(self, declared: Index, place: RowPlace) -> None:
        self.value = declared.value
        self._locate: Callable[[KeyValues], tuple[KeyValues, str]] = self._compile_locate
        super().__init__(declared, place)

    def fixed_value(self) -> bytes | None:
        return b"1" if self.value is None else None

    def contribution(self, record: Any, values: KeyValues) -> bytes:
        if self.value is None:
            return b"1"
        fields = self._record_key.fields
        is_of_key = self.value in fields
        carried = values[fields.index(self.value)] if is_of_key else getattr(record, self.value)
        return document.encode_checked(carried)

    def contributes_key(self) -> bool:
        return self.value in self._record_key.fields

    def member(self, row: bytes) -> object:
        try:
            return None if self.value is None else document.parse(row)
        except DocumentError as error:
            raise UnreadableError("The index row is not JSON.", index=self.template.text) from error

    def owner(self, key: str, row: bytes) -> KeyValues:
        """Return the key values of the one record that has the row."""
        values = self.template.split(key)
        if values is None:
            raise UnreadableError(
                "The row is not of its index's shape; see `keyhouse verify`.", key=key
            )
        return self._candidates(values, self.member(row))[0]

    def owner_at(self, key: str, row: bytes) -> tuple[KeyValues, str]:
        """Return the key values of the one record that has the row, and its key."""
        try:
            if (
                len(self._owner_at) == len(self._owner)
                and (row_values := self.template.split(key)) is not None
            ):
                return self._locate(row_values)
            values = self.owner(key, row)
            return values, self._record_key.join(values)
        except (KeyFieldError, ValueError, TypeError) as error:
            raise UnreadableError(
                "The row does not lead to a record.", key=key, index=self.template.text
            ) from error

    def _compile_locate(self, row_values: KeyValues) -> tuple[KeyValues, str]:
        """Compile `owner_at` for rows whose keys hold the record's whole key, on first use: a scan
        calls it for each row.

        A ULID in the row's key is a valid one in the record's key too; so is text, if nothing of it
        is escaped there.
        """
        names, key = [self.template.fields[at] for at in self._owner_at], self._record_key
        sources = [f"v[{at}]" for at in self._owner_at]
        trusted = [n for n in names if key.segment(n).writes_unchanged(self.template.segment(n))]
        self._locate = compile_address(key, sources, "v", trusted)
        return self._locate(row_values)


class BoundUnique(BoundIndex):
    """See Unique."""

    strategy = "merge"
    has_one_holder = True

    def merge(
        self, key: str, row: bytes | None, removed: bytes | None, added: bytes | None
    ) -> bytes | None:
        mine = row is not None and row in (removed, added)
        if added is None:
            return None if mine else row
        if row is not None and not mine:
            values = self.template.parse(key) or {}
            raise UniqueError(
                "Another record holds this value.",
                index=self.template.text,
                **({} if self.private else {"key": key, "holder": self.member(row)}),
                value={name: part for name, part in values.items() if name not in self.private},
            )
        return added


class BoundFirst(BoundUnique):
    """See First."""

    has_successors = True

    def __init__(self, declared: First, place: RowPlace) -> None:
        super().__init__(declared, place)
        among, names = place.rows.get(declared.among), self.template.fields
        if (
            not isinstance(among, BoundIndex)
            or among.template.fields[: len(names)] != names
            or among.declared.when is not declared.when
        ):
            raise DeclarationError(
                "A First row is among an index of its record with the same `when`,"
                " whose key begins with its fields.",
                record=place.record,
                row=declared.template.text,
                among=declared.among.template.text,
            )
        self.among = among

    def merge(
        self, key: str, row: bytes | None, removed: bytes | None, added: bytes | None
    ) -> bytes | None:
        """Return the row's new value. A row that another record holds is rewritten as it is, so
        that a holder that leaves at the same time loses the race and sees the new candidate."""
        mine = row is not None and row in (removed, added)
        if mine or row is None:
            return added
        return row

    def successor(self, key: str, row: bytes) -> bytes:
        """Return the value of the row once the record at this row of `among` holds it."""
        assert self.value is not None
        return document.encode_checked(
            self.among.owner(key, row)[self._record_key.fields.index(self.value)]
        )

    def holds(self, row: bytes | None, contribution: Any) -> bool:
        return row is not None
