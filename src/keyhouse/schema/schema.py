"""A schema: the records, derived rows, logs and migrations of one keyspace.

Declaring it proves that every key has one parse, that in one store no two templates build the same
key, and that no scan returns another template's rows; or it raises a DeclarationError that shows a
witness key. An intended overlap (`b:duration_map:…` among the books at `b:…`) is declared, and
scans then skip rows that do not match their template.
"""

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from keyhouse.arguments import checked
from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.keys.segment import Segment
from keyhouse.keys.template import Template
from keyhouse.limits import SPACE_BYTES_MAX
from keyhouse.schema.compiled_rows import Keys
from keyhouse.schema.links import check_links
from keyhouse.schema.log import Log
from keyhouse.schema.meta import Meta, Migration
from keyhouse.schema.operation import Operation, check_operations
from keyhouse.schema.record import Declared, Record


class Space:
    """The spaces of a schema.

    description    one space in words: "a library"
    field          the key field that repeats the space's name
    segment        the type of the space's name
    name           the only space, if there is just one
    """

    @checked(DeclarationError)
    def __init__(
        self,
        description: str,
        /,
        *,
        field: str | None = None,
        segment: Segment | None = None,
        name: str | None = None,
    ) -> None:
        self.description = description
        self.field = field
        self.segment = segment
        self.name = name

    def bound(self, space: str) -> dict[str, object]:
        """Return the key fields that a store of this space fixes.

        Raises KeyFieldError if the name is not valid for this schema.
        """
        if not isinstance(space, str):
            raise KeyFieldError("A space's name must be text.", space=space)
        try:
            size = len(space.encode())
        except UnicodeEncodeError:
            raise KeyFieldError(
                "A space's name must be text: this one contains a lone surrogate.", space=space
            ) from None
        if not 0 < size <= SPACE_BYTES_MAX or "\0" in space:
            raise KeyFieldError(
                "A space's name has 1 to 255 bytes, and no U+0000.", space=space, bytes=size
            )
        if self.name is not None and space != self.name:
            raise KeyFieldError("The schema has only one space.", space=space, only=self.name)
        if self.segment is not None:
            try:
                self.segment.format(space)
            except ValueError as error:
                raise KeyFieldError(f"The space {error}.", space=space) from None
        return {} if self.field is None else {self.field: space}


class KeyMatch(msgspec.Struct, frozen=True):
    """The declaration that a key belongs to, its record, and the values of the key's fields.

    The declaration of a legacy key is its record's `legacy`.
    """

    declared: Any
    record: Any
    values: Keys

    @property
    def fields(self) -> dict[str, object]:
        return dict(zip(self.declared.template.fields, self.values, strict=True))


class Finder:
    """Find the declaration of a key, among records and their derived rows.

    Called for every row of a store by `verify` and exports, so heads are compared first.
    """

    __slots__ = ("_candidates",)

    def __init__(self, records: Iterable[Record[Any]]) -> None:
        self._candidates: list[tuple[str, Template, Declared, Record[Any]]] = []
        for record in records:
            self._candidates.append((record.template.head, record.template, record, record))
            if (legacy := record.legacy) is not None:
                self._candidates.append((legacy.template.head, legacy.template, legacy, record))
            self._candidates += [
                (each.template.head, each.template, each, record) for each in record.derived
            ]

    def find(self, key: str) -> KeyMatch | None:
        for head, template, declared, record in self._candidates:
            if key.startswith(head) and (values := template.split(key)) is not None:
                return KeyMatch(declared, record, values)
        return None


class Schema:
    """The declaration of one keyspace.

    overlaps      known overlaps: pairs of (scanned, inside)
    fixed         key fields that a store sets, not a call, with their defaults
    meta          the templates of the version and job rows; a schema with migrations or links has a
                  default
    operations    functions of one's own, which a service offers beside the generated operations
    writes_legacy_keys   the default of its stores: new records are written at their legacy keys
    """

    @checked(DeclarationError)
    def __init__(
        self,
        name: str,
        *records: Record[Any],
        space: Space,
        doc: str = "",
        overlaps: tuple[tuple[Declared, Declared], ...] = (),
        fixed: Mapping[str, str] | None = None,
        meta: Meta | None = None,
        migrations: tuple[Migration, ...] = (),
        operations: Sequence[Operation[Any, Any]] = (),
        writes_legacy_keys: bool = False,
    ) -> None:
        self.name = name
        self.operations = tuple(operations)
        check_operations(name, self.operations, records)
        self.writes_legacy_keys = writes_legacy_keys
        self.doc = doc
        self.space = space
        self.prefix = ""
        self._prefix: Template | None = None
        self.fixed = dict(fixed or {})
        self.has_links = any(record.links for record in records)
        self.meta = meta = meta or (Meta() if migrations or self.has_links else None)
        self.migrations = migrations
        self.records = records + (meta.records if meta is not None else ())
        self.overlaps = overlaps
        self.filtered = frozenset(id(scanned) for scanned, _ in overlaps)
        self._owners = {id(migration.over): migration.over for migration in migrations}
        self._owners |= {id(declared): record for record, declared in self.declared()}
        self._owners |= {id(record.current): record for record in self.records}
        self._finder = Finder(self.records)
        self._sources: dict[int, list[Record[Any]]] = {}
        self._prefixed: dict[str, Schema] = {}
        self._check_names()
        self._check_migrations()
        self._bound = frozenset(self.fixed) | frozenset(filter(None, [self.space.field]))
        check_links(self.records, self._bound)
        self._prove_no_conflicts()

    def __repr__(self) -> str:
        return f"Schema({self.name!r})"

    @property
    def version(self) -> int:
        """Return the version that this code writes: the number of its last migration."""
        return self.migrations[-1].id if self.migrations else 0

    def declared(self) -> Iterator[tuple[Record[Any], Declared]]:
        """Yield every record, legacy key and derived row with its record, in declaration order."""
        for record in self.records:
            yield record, record
            if record.legacy is not None:
                yield record, record.legacy
            for derived in record.derived:
                yield record, derived

    def find(self, key: str) -> KeyMatch | None:
        """Return the declaration of a key, or None if no template matches it."""
        return self._finder.find(key)

    def record(self, name: str) -> Record[Any]:
        for record in self.records:
            if record.name == name:
                return record
        raise DeclarationError(
            "The schema has no such record.", record=name, known=[r.name for r in self.records]
        )

    def under(self, prefix: str) -> "Schema":
        """Return the schema with the same text in front of all its keys, its meta rows included.

        The text may hold the name of the space, as in `tenant:{tenant}:`. The records of this
        schema are handles of the returned one too. It proves nothing again: keys that differ still
        differ with a common text in front.
        """
        if prefix not in self._prefixed:
            self._prefixed[prefix] = _with_prefix(self, prefix)
        return self._prefixed[prefix]

    def text_before(self, space: str) -> str:
        """Return the text that the prefix puts in front of all keys of a space."""
        if self._prefix is None:
            return ""
        return self._prefix.build(self.space.bound(space))

    def aliases(self, record: Record[Any]) -> list[Record[Any]]:
        """Return the records that a record of this schema is known by; itself comes last."""
        return [*self._sources.get(id(record), ()), record]

    def replacing(self, record: Record[Any], other: Record[Any]) -> "Schema":
        """Return the schema with another declaration of one of its records, such as one with sealed
        members. The record itself is a handle of the returned schema too, as are its derived rows,
        in their order."""
        pairs = list(zip(record.declarations(), other.declarations(), strict=False))
        kinds = [type(each) for each in record.declarations()]
        if record not in self.records or record.name != other.name:
            raise DeclarationError("The schema has no such record.", record=other.name)
        if kinds != [type(each) for each in other.declarations()]:
            raise DeclarationError(
                "The other declaration needs the same kinds of derived rows, in the same order.",
                record=record.name,
            )
        schema = copy.copy(self)
        schema.records = tuple(other if each is record else each for each in self.records)
        schema._sources = {**self._sources, id(other): self.aliases(record)}
        schema._owners = self._owners | {id(each): other for pair in pairs for each in pair}
        moved = {id(one): another for one, another in pairs}
        schema.overlaps = tuple(
            (moved.get(id(one), one), moved.get(id(another), another))
            for one, another in self.overlaps
        )
        schema.filtered = frozenset(id(scanned) for scanned, _ in schema.overlaps)
        schema._finder, schema._prefixed = Finder(schema.records), {}
        schema._prove_no_conflicts()
        return schema

    def owner(self, declared: Declared) -> Record[Any] | None:
        """Return the record of a declaration, or None if it is not of this schema."""
        return self._owners.get(id(declared))

    def is_former(self, record: Record[Any]) -> bool:
        """Return whether a record that a migration is over is an older declaration: not one of the
        schema's own."""
        owner = self.owner(record) or record
        return not any(owner is each or owner is each.current for each in self.records)

    def _move_records(self, prefix: Template) -> None:
        """Replace all records by copies with a prefix; the records themselves stay handles."""
        former = [each for each in self._owners.values() if self.is_former(each)]
        sources = [*former, *self.records]  # of those that share a derived row, the last has it
        copies = {id(source): source.under(prefix) for source in dict.fromkeys(sources)}
        self.records = tuple(copies[id(record)] for record in self.records)
        known = {id(source): self.aliases(source) for source in sources}
        self._sources = {id(copies[id(source)]): known[id(source)] for source in sources}
        moved: dict[int, Declared] = {}
        self._owners = {}
        for source in sources:
            to = copies[id(source)]
            for alias in known[id(source)]:
                for one, other in zip(alias.declarations(), to.declarations(), strict=True):
                    moved[id(one)] = other
                    self._owners |= {id(one): to, id(other): to}
        self.overlaps = tuple((moved[id(one)], moved[id(other)]) for one, other in self.overlaps)
        self.filtered = frozenset(id(scanned) for scanned, _ in self.overlaps)
        if self.meta is not None:
            self.meta = self.meta.replaced(*(copies[id(each)] for each in self.meta.records))
        self._bound |= frozenset(prefix.fields)
        self._finder = Finder(self.records)

    def _check_names(self) -> None:
        names = [record.name for record in self.records]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DeclarationError(
                "Two records have the same name: declare `name` for one of them.",
                schema=self.name,
                names=twice,
            )
        for record in self.records:
            if (
                isinstance(record, Log)
                and record.state is not None
                and record.state not in self.records
            ):
                raise DeclarationError(
                    "A log's state must be a record of the same schema.", log=record.name
                )

    def _check_migrations(self) -> None:
        ids = [migration.id for migration in self.migrations]
        if ids != list(range(1, len(ids) + 1)):
            raise DeclarationError(
                "Migrations must be numbered 1, 2, 3, … in order.", schema=self.name, ids=ids
            )
        for migration in self.migrations:
            over: object = migration.over  # a Struct does not check its arguments
            if not isinstance(over, Record) or not callable(migration.step):
                raise DeclarationError(
                    "A migration needs a Record and a step.", schema=self.name, id=migration.id
                )

    def _prove_no_conflicts(self) -> None:
        # Imported late: it loads the automata, which a program without a schema does not need.
        from keyhouse.schema.template_conflicts import prove

        bound = self._bound
        for record in self.records:
            legacy = record.legacy
            if legacy is not None and legacy.template.tail(bound) != record.template.tail(bound):
                raise DeclarationError(
                    "Legacy keys differ from the record's keys only before the first field.",
                    record=record.name,
                    key=record.template.text,
                    legacy=legacy.template.text,
                )
        prove([declared for _, declared in self.declared()], bound, self.overlaps)


def _with_prefix(schema: Schema, text: str) -> Schema:
    space = schema.space
    if schema.prefix or space.field is not None:
        raise DeclarationError(
            "All keys of the schema begin with the name of its space or with a prefix already.",
            schema=schema.name,
            prefix=schema.prefix or f"{{{space.field}}}",
        )
    segments = {} if space.segment is None else dict.fromkeys(_field_names(text), space.segment)
    prefix = Template(text, escape=schema.records[0].template.escape, **segments)
    if len(prefix.fields) > 1 or not prefix.literals[-1]:
        raise DeclarationError(
            "A prefix has one field at most, the name of the space, and ends with other text.",
            prefix=text,
        )
    under = copy.copy(schema)
    under.prefix, under._prefix, under._prefixed = text, prefix, {}
    under.space = copy.copy(space)
    under.space.field = prefix.fields[0] if prefix.fields else None
    under._move_records(prefix)
    return under


def _field_names(text: str) -> tuple[str, ...]:
    return Template(text).fields
