"""Derived rows: the other rows of a record, as pure functions of that one record.

Each kind returns, for a record, the keys of its rows and the contribution to each (`rows`). A write
compares the rows of the old record with those of the new one and applies the difference; this one
comparison serves insert, change, move and delete. A kind applies a difference by one of three
strategies (`strategy`):

    put    the record owns the whole row: write it or delete it          Index
    merge  the row is shared: the row's old value decides its new one    Unique, First, Summary
    add    the row counts the records that have it                       RecordCount

A field of a derived row's template comes from, in this order: `fields`; the record's key; the
record's attribute of that name. A record whose field is None has no such row, unless the segment is
optional: that makes an index sparse.

Each kind is two classes: the declaration, and its bound form (`BoundDerived`), which derives the
rows of one record at the keys of one space. Declarations do not change, and several records may
share one.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, ClassVar, Literal, NamedTuple

from keyhouse.advice.arguments import checked
from keyhouse.advice.nearest import nearest
from keyhouse.errors import DeclarationError
from keyhouse.keys.template import Template
from keyhouse.schema.compiled_rows import (
    FieldSource,
    FromAttribute,
    KeyValues,
    RowRule,
    RowSet,
    Source,
)
from keyhouse.schema.declaration import Declaration

Strategy = Literal["put", "merge", "add"]


class RowPlace(NamedTuple):
    """Where a derived row is bound: its template with some fields fixed, and the record that it is
    derived from, by name, template and attributes.

    `private`: fields of the row that may hold private attributes of the record in clear. `rows`:
    those rows of the record that are bound already.
    """

    template: Template
    record: str
    key: Template
    attributes: frozenset[str]
    private: tuple[str, ...]
    rows: "Mapping[Derived, BoundDerived]"


class Derived(Declaration):
    """Base of all declarations: a template, and the sources of its fields."""

    kind: ClassVar[str]
    """The kind of row in one word."""
    needs_others: ClassVar[bool] = False
    """True if it needs other rows of its record: they are bound first, and repaired first."""

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
        if len(self.each) > 1:
            raise DeclarationError(
                "A derived row takes each value of one field.", template=self.template.text
            )
        if others := sorted((self.fields.keys() | self.each.keys()) - set(self.template.fields)):
            raise DeclarationError(
                "The derived row's key has no such field.",
                fields=others,
                **nearest(others[0], self.template.fields),
                template=self.template.text,
            )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.template.text!r})"

    def bind(self, place: RowPlace) -> "BoundDerived":
        """Return the form that derives the rows of a record. Raises DeclarationError if the record
        does not have what the row needs."""
        raise AssertionError("each kind has its own")

    def value_text(self) -> str:
        """Return what the value of a row is, for the page of the keyspace."""
        raise AssertionError("each kind has its own")

    def carried(self) -> str | None:
        """Return the name of the record's key field that the row's value holds, or None."""
        return None

    def value_sources(self) -> Mapping[str, Source]:
        """Return the sources of what the row's value holds besides, by name. A kind that does not
        say it may hold any part of its record: then a private member hides the value."""
        return {"value": _whole}


def _whole(record: Any) -> Any:
    return record


class BoundDerived:
    """Base of all bound forms: derives the rows of a record, and leads back from a row to it."""

    strategy: ClassVar[Strategy] = "put"
    has_siblings: ClassVar[bool] = False
    """True if several records may make the same contribution: those whose keys differ in a Choice.
    """
    has_one_holder: ClassVar[bool] = False
    """True if one record at a time holds a row with the strategy "merge", also if others derive it.
    """
    has_successors: ClassVar[bool] = False
    """True if another record takes the row over when its holder leaves: `successor`."""
    has_entries: bool = False
    """True if the row has an entry of each record, of which it can be made: `rebuild`."""
    is_claimed: ClassVar[bool] = True
    """True if a record writes the row even if it stays as it is: the row gets the record's expiry,
    and a record that leaves it meanwhile loses the race."""

    def __init__(self, declared: Derived, place: RowPlace) -> None:
        self.declared = declared
        self.template = place.template
        self.private = place.private
        self.record_name = place.record
        self._record_key = key = place.key
        self._attributes = place.attributes
        self.rule = self._rule(key)
        self._row_set = RowSet([self.rule])
        self._owner = tuple(self._origin(name, key) for name in key.fields)
        self._owner_at = tuple(origin for origin in self._owner if isinstance(origin, int))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.template.text!r})"

    @property
    def places(self) -> tuple[Template, ...]:
        """The templates of the keys at which the row may be."""
        return (self.template,)

    def key_of(self, key: str) -> str:
        """Return the key of the row at a place: a derived row has one."""
        return key

    def rows(self, record: Any, values: KeyValues) -> dict[str, Any]:
        """Return the keys of the rows that the record has, each with its contribution."""
        return self._row_set.rows(record, values)

    def fixed_value(self) -> bytes | int | None:
        """Return what every record contributes alike; None where it depends on the record."""
        return None

    def contribution(self, record: Any, values: KeyValues) -> Any:
        return self.fixed_value()

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

    def owners(self, key: str, row: bytes) -> list[list[KeyValues]]:
        """Return, for each contribution in the row, the key values of every record that may have
        made it."""
        values = self.template.split(key)
        return [] if values is None else [self._candidates(values, self.member(row))]

    def stored_contribution(self, row: bytes, values: KeyValues) -> Any:
        """Return the contribution in the row that is of the record with these key values, one of
        its `owners`: `merge` removes it."""
        return row

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
            each_at=next(
                (at for at, name in enumerate(fields) if name in self.declared.each), None
            ),
            when=self.declared.when,
            value=self.contribution if fixed is None else fixed,
            is_value_of_key=self.contributes_key(),
            private=(*self.private, *self._hashed()),
        )

    def _hashed(self) -> list[str]:
        """Return the fields of which the key has an HMAC: sealed ones, say."""
        segments = zip(self.template.fields, self.template.segments, strict=True)
        return [name for name, segment in segments if segment.is_hashed]

    def _source(self, name: str, key: Template) -> FieldSource:
        source = self.declared.each.get(name, self.declared.fields.get(name))
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
                **nearest(path.partition(".")[0], {*self._attributes, *key.fields}),
                template=self.template.text,
                record=self.record_name,
            )
        return path

    def _origin(self, name: str, key: Template) -> int | tuple[str, ...] | None:
        """Return where a field of the record's key is found again: its position in the derived key,
        None for the row's value, or the words of a Choice."""
        if (
            name in self.template.fields
            and name not in self.declared.fields
            and name not in self.declared.each
        ):
            return self.template.fields.index(name)
        segment = key.segment(name)
        if name == self.declared.carried() and self.strategy == "merge":
            return None
        if name == self.declared.carried() or (segment.words is not None and not self.has_siblings):
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

    def _candidates(self, row_values: KeyValues, member: object) -> list[KeyValues]:
        if len(self._owner_at) == len(self._owner):
            return [tuple([row_values[at] for at in self._owner_at])]
        options: list[Iterable[object]] = []
        for origin in self._owner:
            if origin is None:
                options.append((member,))
            elif isinstance(origin, int):
                options.append((row_values[origin],))
            else:
                options.append(origin)
        return list(product(*options))

    def siblings(self, values: KeyValues) -> list[KeyValues]:
        """Return the key values of the other records that may contribute the same member to the
        same row."""
        options = [
            (k,) if not isinstance(o, tuple) else o
            for k, o in zip(values, self._owner, strict=True)
        ]
        return [other for other in product(*options) if other != values]


class RecordCount(Derived):
    """A counter of the records that have the row. An absent row counts 0."""

    kind = "count"

    def bind(self, place: RowPlace) -> "BoundRecordCount":
        return BoundRecordCount(self, place)

    def value_text(self) -> str:
        return "the number of records"

    def value_sources(self) -> Mapping[str, Source]:
        return {}


class BoundRecordCount(BoundDerived):
    strategy = "add"

    def fixed_value(self) -> int:
        return 1

    def _origin(self, name: str, key: Template) -> int | tuple[str, ...] | None:
        return None  # a count does not lead back to a record

    def owners(self, key: str, row: bytes) -> list[list[KeyValues]]:
        return []
