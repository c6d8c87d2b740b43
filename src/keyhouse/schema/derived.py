"""Derived rows: the other rows of a record, as pure functions of that one record.

Each kind returns, for a record, the keys of its rows and the contribution to each (`rows`). A write
compares the rows of the old record with those of the new one and applies the difference; this one
comparison serves insert, change, move and delete. A kind applies a difference by one of three
strategies (`strategy`):

    put    the record owns the whole row: write it or delete it          Index
    merge  the row is shared: the row's old value decides its new one    Unique, First, Summary
    add    the row is a counter                                          RecordCount

A field of a derived row's template comes from, in this order: `fields`; the record's key; the
record's attribute of that name. A record whose field is None has no such row, unless the segment is
optional: that makes an index sparse.
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, ClassVar, Literal, Self

from keyhouse.arguments import checked
from keyhouse.errors import (
    DeclarationError,
    DocumentError,
    KeyFieldError,
    UniqueError,
    UnreadableError,
)
from keyhouse.keys.compiler import compile_address
from keyhouse.keys.number_segments import Day, Descending, FixedPoint, Integer, Timestamp
from keyhouse.keys.segment import Segment
from keyhouse.keys.segments import OptionalSegment
from keyhouse.keys.template import Template
from keyhouse.schema import document
from keyhouse.schema.compiled_rows import FieldSource, FromAttribute, Keys, RowRule, RowSet, Source
from keyhouse.schema.nearest import nearest

Strategy = Literal["put", "merge", "add"]

NOT_TEXT: tuple[type[Segment], ...] = (
    Integer,
    FixedPoint,
    Day,
    Timestamp,
    Descending,
    OptionalSegment,
)
"""Types of key fields whose values are not text, so that names of JSON members do not hold them."""


class Derived:
    """Base of all kinds: a template, the sources of its fields, and the way back to the record."""

    strategy: ClassVar[Strategy] = "put"
    has_siblings: ClassVar[bool] = False
    """True if several records may make the same contribution: those whose keys differ in a Choice.
    """
    has_successors: ClassVar[bool] = False
    """True if another record takes the row over when its holder leaves: `successor`."""
    has_entries: bool = False
    """True if the row has an entry of each record, of which it can be made: `rebuild`."""
    is_claimed: ClassVar[bool] = True
    """True if a record writes the row even if it stays as it is: the row gets the record's expiry,
    and a record that leaves it meanwhile loses the race."""

    @checked(DeclarationError)
    def __init__(
        self,
        at: str | Template,
        *,
        fields: Mapping[str, Source] | None = None,
        each: Mapping[str, Source] | None = None,
        when: Callable[[Any], bool] | None = None,
        name: str | None = None,
        shown: bool = False,
    ) -> None:
        """`each`: the field that takes every value of a collection in turn. `when`: only records
        for which it returns true have the row. `name`: what requests of a service call it.
        `shown`: a service reads it for callers, although its key may hold private attributes."""
        self.template = at if isinstance(at, Template) else Template(at)
        self.fields = dict(fields or {})
        self.each = dict(each or {})
        self.when = when
        self.name = name
        self.shown = shown
        self.private: tuple[str, ...] = ()
        """Its fields that may hold private attributes of the record in clear."""
        self.record_name = ""
        if len(self.each) > 1:
            raise DeclarationError(
                "A derived row takes each value of one field.", template=self.template.text
            )
        if others := sorted((self.fields.keys() | self.each.keys()) - set(self.template.fields)):
            raise DeclarationError(
                "The derived row's key has no such field.",
                fields=others,
                **nearest(others[0], self.template.fields),
                known=list(self.template.fields),
                template=self.template.text,
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.template.text!r})"

    def attach(
        self, record_name: str, key: Template, attributes: frozenset[str], renamed: frozenset[str]
    ) -> Self:
        """Find the source of each field, once the record is known. `renamed`: key fields that the
        record does not hold under that name."""
        self.record_name = record_name
        self._record_key = key
        self._record_fields = key.fields
        self._attributes = attributes
        self._renamed = renamed
        self.rule = self._rule(key)
        self._row_set = RowSet([self.rule])
        self._owner = tuple(self._origin(name, key) for name in key.fields)
        self._owner_at = tuple(origin for origin in self._owner if isinstance(origin, int))
        return self

    def moved(self, template: Template, key: Template) -> Self:
        """Return a copy at another template, of a record at another key."""
        moved = copy.copy(self)
        moved.template = template
        return moved.attach(self.record_name, key, self._attributes, self._renamed)

    def rows(self, record: Any, keys: Keys) -> dict[str, Any]:
        """Return the keys of the rows that the record has, each with its contribution."""
        return self._row_set.rows(record, keys)

    def fixed_value(self) -> bytes | int | None:
        """Return what every record contributes alike; None where it depends on the record."""
        return None

    def contribution(self, record: Any, keys: Keys) -> Any:
        raise AssertionError("each kind has its own")

    def contributes_key(self) -> bool:
        """Return whether the contribution depends on nothing but the record's key."""
        return False

    def holds(self, row: bytes | None, contribution: Any) -> bool:
        """Return whether the stored row has this contribution."""
        return bool(row == contribution)

    def merge(self, key: str, row: bytes | None, removed: Any, added: Any) -> bytes | None:
        """Return the row's new value; None: no row. `removed` and `added` are the contributions of
        one record before and after."""
        raise AssertionError("each kind that is merged has its own")

    def owners(self, key: str, row: bytes) -> list[list[Keys]]:
        """Return, for each contribution in the row, the key values of every record that may have
        made it."""
        found = self.template.split(key)
        return [] if found is None else [self._candidates(found, self.member(row))]

    def member(self, row: bytes) -> object:
        """Return the field of the record's key that the row's value holds."""
        return None

    def _rule(self, key: Template) -> RowRule:
        """Return the rule of these rows. A ULID of the record's key is valid there too, and is
        written as it is."""
        fields, segments = self.template.fields, self.template.segments
        sources = tuple(self._source(name, key) for name in fields)
        fixed = self.fixed_value()
        return RowRule(
            self.template,
            sources,
            required=tuple(
                not segment.is_optional
                and not (isinstance(source, int) and not key.segments[source].is_optional)
                for source, segment in zip(sources, segments, strict=True)
            ),
            verbatim=tuple(
                isinstance(source, int)
                and segment.is_verbatim
                and segment.writes_unchanged(key.segments[source])
                for source, segment in zip(sources, segments, strict=True)
            ),
            each_at=next((at for at, name in enumerate(fields) if name in self.each), None),
            when=self.when,
            value=self.contribution if fixed is None else fixed,
            is_value_of_key=self.contributes_key(),
            private=(*self.private, *self._hashed()),
        )

    def _hashed(self) -> list[str]:
        """Return the fields of which the key has an HMAC: sealed ones, say."""
        segments = zip(self.template.fields, self.template.segments, strict=True)
        return [name for name, segment in segments if segment.is_hashed]

    def _source(self, name: str, key: Template) -> FieldSource:
        source = self.each.get(name, self.fields.get(name))
        if callable(source):
            if isinstance(source, FromAttribute) and source.attribute not in self._attributes:
                raise DeclarationError(
                    "The record has no such attribute that a field is made of.",
                    field=name,
                    **nearest(source.attribute, self._attributes),
                    attribute=source.attribute,
                    record=self.record_name,
                )
            return source
        if source is None and name in key.fields:
            return key.fields.index(name)
        path = source or name
        if path.partition(".")[0] not in self._attributes or not all(
            map(str.isidentifier, path.split("."))
        ):
            raise DeclarationError(
                "The derived row has a field that its record does not.",
                field=name,
                **({} if path == name else {"attribute": path}),
                **nearest(path.partition(".")[0], (*self._attributes, *key.fields)),
                template=self.template.text,
                record=self.record_name,
                known=sorted({*self._attributes, *key.fields}),
            )
        return path

    def _origin(self, name: str, key: Template) -> int | tuple[str, ...] | None:
        """Return where a field of the record's key is found again: its position in the derived key,
        None for the row's value, or the words of a Choice."""
        if name in self.template.fields and name not in self.fields and name not in self.each:
            return self.template.fields.index(name)
        segment = key.segment(name)
        if name == self.carried() and self.strategy == "merge":
            return None
        if name == self.carried() or (segment.words is not None and not self.has_siblings):
            raise DeclarationError(
                "Two records could derive this row:"
                " put the record's key field into its key, or make it Unique.",
                field=name,
                template=self.template.text,
            )
        if segment.words is not None:
            return segment.words
        raise DeclarationError(
            "The derived row does not lead back to its record:"
            " its key or value must hold the record's key field, most often as its last field.",
            field=name,
            template=self.template.text,
            record=self.record_name,
        )

    def carried(self) -> str | None:
        """Return the name of the key field that the row's value holds, or None."""
        return None

    def _candidates(self, found: Keys, member: object) -> list[Keys]:
        if len(self._owner_at) == len(self._owner):
            return [tuple([found[at] for at in self._owner_at])]
        options: list[Iterable[object]] = []
        for origin in self._owner:
            if origin is None:
                options.append((member,))
            elif isinstance(origin, int):
                options.append((found[origin],))
            else:
                options.append(origin)
        return list(product(*options))

    def siblings(self, keys: Keys) -> list[Keys]:
        """Return the key values of the other records that may contribute the same member to the
        same row."""
        options = [
            (k,) if not isinstance(o, tuple) else o for k, o in zip(keys, self._owner, strict=True)
        ]
        return [other for other in product(*options) if other != keys]


class Index(Derived):
    """A row that leads to the record by other fields than its key. Its value is `1`, or a field:
    `value="id"`."""

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

    def attach(
        self, record_name: str, key: Template, attributes: frozenset[str], renamed: frozenset[str]
    ) -> Self:
        self._locate: Callable[[Keys], tuple[Keys, str]] = self._compile_locate
        return super().attach(record_name, key, attributes, renamed)

    def fixed_value(self) -> bytes | None:
        return b"1" if self.value is None else None

    def contribution(self, record: Any, keys: Keys) -> bytes:
        if self.value is None:
            return b"1"
        return document.encode_checked(self._carried_value(record, keys))

    def contributes_key(self) -> bool:
        return self.value in self._record_fields

    def carried(self) -> str | None:
        return self.value

    def member(self, row: bytes) -> object:
        try:
            return None if self.value is None else document.parse(row)
        except DocumentError as error:
            raise UnreadableError("The index row is not JSON.", index=self.template.text) from error

    def owner(self, key: str, row: bytes) -> Keys:
        """Return the key values of the one record that has the row."""
        found = self.template.split(key)
        if found is None:
            raise UnreadableError(
                "The row is not of its index's shape; see `keyhouse verify`.", key=key
            )
        return self._candidates(found, self.member(row))[0]

    def owner_at(self, key: str, row: bytes) -> tuple[Keys, str]:
        """Return the key values of the one record that has the row, and its key."""
        try:
            if (
                len(self._owner_at) == len(self._owner)
                and (found := self.template.split(key)) is not None
            ):
                return self._locate(found)
            values = self.owner(key, row)
            return values, self._record_key.join(values)
        except (KeyFieldError, ValueError, TypeError) as error:
            raise UnreadableError(
                "The row does not lead to a record.", key=key, index=self.template.text
            ) from error

    def _compile_locate(self, found: Keys) -> tuple[Keys, str]:
        """Compile `owner_at` for rows whose keys hold the record's whole key, on first use: a scan
        calls it for each row.

        A ULID in the row's key is a valid one in the record's key too; so is text, if nothing of it
        is escaped there.
        """
        names, key = [self.template.fields[at] for at in self._owner_at], self._record_key
        sources = [f"v[{at}]" for at in self._owner_at]
        trusted = [n for n in names if key.segment(n).writes_unchanged(self.template.segment(n))]
        self._locate = compile_address(key, sources, "v", trusted)
        return self._locate(found)

    def _carried_value(self, record: Any, keys: Keys) -> object:
        assert self.value is not None
        if self.value in self._record_fields:
            return keys[self._record_fields.index(self.value)]
        return getattr(record, self.value)


class Unique(Index):
    """An index row that one record at most can have: a put of a second one raises UniqueError."""

    strategy = "merge"

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


class First(Unique):
    """An index row that the first of several records holds; when it goes, the next one in `among`
    succeeds it.

    `among` is an index of the same record that lists all candidates: its template has the same
    leading fields.
    """

    has_successors = True

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
            self.among.owner(key, row)[self._record_fields.index(self.value)]
        )

    def holds(self, row: bytes | None, contribution: Any) -> bool:
        return row is not None


class RecordCount(Derived):
    """A counter of the records that have the row. An absent row counts 0."""

    strategy = "add"

    def fixed_value(self) -> int:
        return 1

    def contribution(self, record: Any, keys: Keys) -> int:
        return 1

    def _origin(self, name: str, key: Template) -> int | tuple[str, ...] | None:
        return None  # a count does not lead back to a record

    def owners(self, key: str, row: bytes) -> list[list[Keys]]:
        return []
