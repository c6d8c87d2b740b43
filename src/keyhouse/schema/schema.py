"""Schemas: the declarations of one keyspace, and the proof that its templates do not collide.

A `Schema` is declared once, and knows no space. A `BoundSchema` is the same schema in one space,
which a store uses: the key fields of the space are fixed (`Schema.bind`). The declarations are the
handles of both; `under` and `replacing` return a schema of the same handles, whose bound forms have
other keys, or another type.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar, overload

import msgspec

from keyhouse.advice.arguments import checked
from keyhouse.advice.nearest import nearest
from keyhouse.errors import DeclarationError, UsageError
from keyhouse.keys.template import Template
from keyhouse.schema.compiled_rows import KeyValues
from keyhouse.schema.declaration import Declaration
from keyhouse.schema.derived import BoundDerived, Derived
from keyhouse.schema.index import BoundIndex, Index
from keyhouse.schema.links import NO_LINKS, BoundLink, Link, RecordLinks, check_links
from keyhouse.schema.log import Log
from keyhouse.schema.meta import Meta, Migration, deletion_job
from keyhouse.schema.operation import Operation, check_operations
from keyhouse.schema.record import BoundDeclared, BoundRecord, Declared, Record
from keyhouse.schema.record_json import MemberSealer
from keyhouse.schema.space import Space

T = TypeVar("T")
B = TypeVar("B", bound=BoundDerived)


class KeyMatch(msgspec.Struct, frozen=True):
    """The bound declaration that a key belongs to, its record, and the values of the key's fields.

    The declaration of a legacy key is its record's `legacy`.
    """

    declared: BoundDeclared
    record: BoundRecord[Any]
    values: KeyValues

    @property
    def is_record(self) -> bool:
        """True for the key of a record, False for that of a derived row."""
        return isinstance(self.declared, BoundRecord)

    @property
    def fields(self) -> dict[str, object]:
        return dict(zip(self.declared.template.fields, self.values, strict=True))


class Schema(Declaration):
    """The declaration of one keyspace.

    overlaps      known overlaps: pairs of (scanned, inside)
    fixed         key fields that a store sets, not a call, with their defaults
    meta          the templates of the version and job rows; a schema with migrations or links has a
                  default
    operations    functions of one's own, which a service offers beside the generated operations
    writes_legacy_keys   a record that has legacy keys is written there, unless it is at its current
                  key already: until every program knows the current keys
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
        self._replaced: dict[Declared, Declared] = {}
        """Declarations that are handles of another one, which has replaced them."""
        self._under: dict[str, Schema] = {}
        self._check_names()
        self._check_migrations()
        self._records_of = _records_of(self.records, migrations)
        self._bound = frozenset(self.fixed) | frozenset(filter(None, [self.space.field]))
        check_links(self.records, self._bound)
        self._prove_no_conflicts()

    def __repr__(self) -> str:
        return f"Schema({self.name!r})"

    @property
    def version(self) -> int:
        """Return the version that this code writes: the number of its last migration."""
        return self.migrations[-1].id if self.migrations else 0

    def bind(
        self, values: Mapping[str, object], *, sealer: MemberSealer | None = None
    ) -> "BoundSchema":
        """Return the schema with some key fields fixed, as a store fixes those of its space.
        `sealer` seals and opens sealed members. Raises KeyFieldError for an invalid value."""
        return BoundSchema(self, values, sealer)

    @cached_property
    def unbound(self) -> "BoundSchema":
        """The schema with no key field fixed."""
        return BoundSchema(self, {})

    def declared(self) -> Iterator[tuple[BoundRecord[Any], BoundDeclared]]:
        """Yield every record, legacy key and derived row with its record, in declaration order, at
        its keys with no field fixed."""
        return self.unbound.declared()

    def find(self, key: str) -> KeyMatch | None:
        """Return the declaration of a key, or None if no template matches it."""
        return self.unbound.find(key)

    def record(self, name: str) -> Record[Any]:
        for record in self.records:
            if record.name == name:
                return record
        raise DeclarationError(
            "The schema has no such record.",
            record=name,
            **nearest(name, [each.name for each in self.records]),
        )

    def under(self, prefix: str) -> "Schema":
        """Return the schema with the same text in front of all its keys, its meta rows included.

        The text may hold the name of the space, as in `tenant:{tenant}:`. It proves nothing again:
        keys that differ still differ with a common text in front.
        """
        if prefix not in self._under:
            self._under[prefix] = self._with_prefix(prefix)
        return self._under[prefix]

    def _with_prefix(self, text: str) -> "Schema":
        space = self.space
        if self.prefix or space.field is not None:
            raise DeclarationError(
                "All keys of the schema begin with the name of its space or with a prefix already.",
                schema=self.name,
                prefix=self.prefix or f"{{{space.field}}}",
            )
        names = Template(text).fields
        segments = {} if space.segment is None else dict.fromkeys(names, space.segment)
        prefix = Template(text, escape=self.records[0].template.escape, **segments)
        if len(prefix.fields) > 1 or not prefix.literals[-1]:
            raise DeclarationError(
                "A prefix has one field at most, the name of the space, and ends with other text.",
                prefix=text,
            )
        schema = self._variant(
            _under={},
            prefix=text,
            _prefix=prefix,
            space=Space(
                space.description,
                field=prefix.fields[0] if prefix.fields else None,
                segment=space.segment,
                name=space.name,
            ),
        )
        schema.unbound.records()  # rejects a prefix that a template cannot have
        return schema

    def writing_legacy_keys(self, writes: bool = True) -> "Schema":
        """Return the schema whose stores write legacy keys, or do not."""
        return self._variant(_under={}, writes_legacy_keys=writes)

    def text_before(self, space: str) -> str:
        """Return the text that the prefix puts in front of all keys of a space."""
        if self._prefix is None:
            return ""
        return self._prefix.build(self.space.bound(space))

    def replacing(self, record: Record[Any], other: Record[Any]) -> "Schema":
        """Return the schema with another declaration of one of its records, such as one with sealed
        members. The record itself is a handle of the returned schema too, as are its derived rows,
        in their order."""
        pairs = dict(zip(record.declarations(), other.declarations(), strict=False))
        kinds = [type(each) for each in record.declarations()]
        if record not in self.records or record.name != other.name:
            raise DeclarationError("The schema has no such record.", record=other.name)
        if kinds != [type(each) for each in other.declarations()]:
            raise DeclarationError(
                "The other declaration needs the same kinds of derived rows, in the same order.",
                record=record.name,
            )
        records = tuple(other if each is record else each for each in self.records)
        schema = self._variant(
            _under={},
            records=records,
            _records_of=_records_of(records, self.migrations),
            overlaps=tuple(
                (pairs.get(one, one), pairs.get(another, another)) for one, another in self.overlaps
            ),
            _replaced={old: pairs.get(new, new) for old, new in self._replaced.items()} | pairs,
        )
        schema._prove_no_conflicts()
        return schema

    def handle(self, declared: Declared) -> Declared:
        """Return the declaration of this schema that a declaration is a handle of."""
        return self._replaced.get(declared, declared)

    def first_handle(self, record: Record[Any]) -> Record[Any]:
        """Return the record that a record of this schema has replaced first, or itself."""
        replaced = (old for old, new in self._replaced.items() if new is record)
        first = next(replaced, record)
        assert isinstance(first, Record)
        return first

    def record_of(self, declared: Declared) -> Record[Any] | None:
        """Return the record of a declaration, or None if it is not of this schema."""
        return self._records_of.get(self.handle(declared)) if _is_declared(declared) else None

    def is_former(self, record: Record[Any]) -> bool:
        """Return whether a record that a migration is over is an older declaration: not one of the
        schema's own."""
        return (self.record_of(record) or record) not in self.records

    def at_prefix(self, template: Template) -> Template:
        """Return a template with the prefix of the schema."""
        return template if self._prefix is None else template.under(self._prefix)

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
        prove(
            [
                each
                for record in self.records
                for each in (record, record.legacy, *record.derived)
                if each is not None
            ],
            bound,
            self.overlaps,
        )


def _records_of(
    records: Iterable[Record[Any]], migrations: Iterable[Migration]
) -> dict[Declared, Record[Any]]:
    """Return the record of each declaration. A derived row that an older declaration of a record
    shares with the schema's own belongs to the latter."""
    former = [migration.over for migration in migrations]
    return {
        declared: record for record in (*former, *records) for declared in record.declarations()
    }


class BoundSchema:
    """A schema in one space: the bound forms of its declarations. Rejects those of other schemas.

    A record is bound when it is first needed: binding compiles its templates, and a service has
    many spaces of which it reads a few records each. The values of the fixed fields are checked at
    once.
    """

    __slots__ = (
        "_bound",
        "_filtered",
        "_links",
        "_rows",
        "_sealer",
        "has_links",
        "schema",
        "values",
    )

    def __init__(
        self, schema: Schema, values: Mapping[str, object], sealer: MemberSealer | None = None
    ) -> None:
        self.schema = schema
        self.values = dict(values)
        self._sealer = sealer
        self._bound: dict[Declared, BoundDeclared] = {}
        self._rows: list[tuple[str, BoundDeclared, BoundRecord[Any]]] | None = None
        self._filtered = frozenset(scanned for scanned, _ in schema.overlaps)
        self.has_links = schema.has_links
        self._links: dict[BoundRecord[Any], RecordLinks] | None = None
        for _, each in schema.declared() if values else ():
            each.template.check(self.values)

    def record(self, record: Record[T]) -> BoundRecord[T]:
        try:
            bound = self._bound[record]
        except (KeyError, TypeError):
            bound = self._bind(record)
        if not isinstance(bound, BoundRecord):
            raise UsageError(
                "This is a derived row, not a record: give the record, and the row with `by`.",
                given=repr(record),
            )
        return bound

    def keys(self, *addresses: tuple[Record[Any], Mapping[str, object]]) -> list[str]:
        """Return the keys of records, each given by its key fields: for `get_each(ahead=…)`."""
        return [self.record(record).template.build(fields) for record, fields in addresses]

    @overload
    def derived(self, derived: Derived) -> BoundDerived: ...

    @overload
    def derived(self, derived: Derived, kind: type[B]) -> B: ...

    def derived(self, derived: Derived, kind: type[BoundDerived] = BoundDerived) -> BoundDerived:
        """Return the bound form of a derived row, which is of this kind."""
        bound = self.bound(derived)
        if not isinstance(bound, kind):
            raise UsageError(
                "This is not a derived row of that kind.",
                given=repr(derived),
                needed=kind.__name__.removeprefix("Bound"),
            )
        return bound

    def bound(self, declared: Declared) -> BoundDeclared:
        """Return the bound form of a record or of a derived row."""
        try:
            return self._bound[declared]
        except (KeyError, TypeError):
            return self._bind(declared)

    def _bind(self, declared: Declared) -> BoundDeclared:
        schema = self.schema
        owner = schema.record_of(declared)
        if owner is None:
            raise self._foreign(declared)
        target = schema.handle(declared)
        if target not in self._bound:
            for each, bound in self._bind_record(owner).forms():
                if schema.record_of(each) is owner:
                    self._bound[each] = bound
        self._bound[declared] = self._bound[target]
        return self._bound[target]

    def _bind_record(self, record: Record[T]) -> BoundRecord[T]:
        """Return the form that all spaces share if the space changes nothing of it."""
        schema, values = self.schema, self.values
        sealer = self._sealer if record.sealed else None
        if (
            sealer is None
            and not schema.prefix
            and not any(template.changes_by(values) for template in record.templates)
        ):
            return record.unbound
        return BoundRecord(record, lambda template: schema.at_prefix(template).bind(values), sealer)

    def index(self, record: Record[T], by: Index) -> tuple[BoundRecord[T], BoundIndex]:
        """Return a bound record and one of its indexes."""
        bound, index = self.record(record), self.derived(by)
        if not isinstance(index, BoundIndex) or index not in bound.derived:
            raise UsageError("The record has no such index.", record=bound.name, given=repr(by))
        return bound, index

    def links(self, bound: BoundRecord[Any]) -> RecordLinks:
        """Return the links of a bound record to others, and those of others to it."""
        if self._links is None:
            self._links = self._bind_links()
        return self._links.get(bound, NO_LINKS)

    def former_owner_keys(
        self, former: BoundRecord[Any], value: Any, values: KeyValues
    ) -> set[str]:
        """Return the keys of the records that a record of an older declaration is linked to."""
        return {
            key
            for link in former.declared.links
            if self.schema.record_of(link.record) is not None
            for key in self._bind_link(link, former).owner_keys(value, values)
        }

    def guard_key(self, bound: BoundRecord[Any], key: str) -> str:
        """Return the key of the row that announces the deletion of a record (see `link_guard`)."""
        assert self.schema.meta is not None  # a schema with links has one
        job = self.record(self.schema.meta.job)
        return job.template.join((deletion_job(bound.name, key),))

    def _bind_link(self, link: Link, child: BoundRecord[Any]) -> BoundLink:
        by = tuple([self.derived(index, BoundIndex) for index in link.by])
        return BoundLink(link, child, self.record(link.record), by)

    def _bind_links(self) -> dict[BoundRecord[Any], RecordLinks]:
        links_of: dict[BoundRecord[Any], tuple[list[BoundLink], list[BoundLink]]] = {}
        for child in self.records() if self.has_links else ():
            for link in child.declared.links:
                bound = self._bind_link(link, child)
                links_of.setdefault(child, ([], []))[0].append(bound)
                links_of.setdefault(bound.owner, ([], []))[1].append(bound)
        return {record: RecordLinks(*links) for record, links in links_of.items()}

    def records(self) -> list[BoundRecord[Any]]:
        return [self.record(record) for record in self.schema.records]

    def declared(self) -> Iterator[tuple[BoundRecord[Any], BoundDeclared]]:
        """Yield every record, legacy key and derived row with its record, in declaration order."""
        for record in self.records():
            yield record, record
            if record.legacy is not None:
                yield record, record.legacy
            for derived in record.derived:
                yield record, derived

    def filters(self, bound: BoundDeclared) -> bool:
        """Return whether its scans must leave out rows of other templates."""
        return bound.declared in self._filtered

    def find(self, key: str) -> KeyMatch | None:
        """Return the declaration and fields of a key of this space, or None.

        Called for every row of a store by `verify` and exports, so heads are compared first.
        """
        if self._rows is None:
            self._rows = [(each.template.head, each, record) for record, each in self.declared()]
        for head, declared, record in self._rows:
            if key.startswith(head) and (values := declared.template.split(key)) is not None:
                return KeyMatch(declared, record, values)
        return None

    def _foreign(self, declared: Declared) -> UsageError:
        advice = "Give the declared object, such as CLIP or BY_TAG, not its name."
        if isinstance(declared, type):
            advice = "Give the Record, such as CLIP, not the type of its values."
        elif _is_declared(declared):
            advice = "List the record, with its derived rows, in `Schema(…)`."
        return UsageError(
            f"The schema of this store has no such declaration. {advice}",
            given=repr(declared),
            schema=self.schema.name,
        )


def _is_declared(declared: object) -> bool:
    return isinstance(declared, (Record, Derived))
