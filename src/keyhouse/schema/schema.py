"""A schema: the records, derived rows, logs and migrations of one keyspace.

Declaring it proves that every key has one parse, that in one store no two templates build the same
key, and that no scan returns another template's rows; or it raises a DeclarationError that shows a
witness key. An intended overlap (`b:duration_map:…` among the books at `b:…`) is declared, and
scans then skip rows that do not match their template.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from keyhouse.arguments import checked
from keyhouse.errors import DeclarationError, KeyFieldError
from keyhouse.keys.segment_protocol import Segment
from keyhouse.keys.template import Template
from keyhouse.limits import SPACE_BYTES_MAX
from keyhouse.schema.compiled_rows import Keys
from keyhouse.schema.links import check_links
from keyhouse.schema.log import Log
from keyhouse.schema.meta import Meta, Migration
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
        writes_legacy_keys: bool = False,
    ) -> None:
        self.name = name
        self.writes_legacy_keys = writes_legacy_keys
        self.doc = doc
        self.space = space
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

    def owner(self, declared: Declared) -> Record[Any] | None:
        """Return the record of a declaration, or None if it is not of this schema."""
        return self._owners.get(id(declared))

    def _check_names(self) -> None:
        names = [record.name for record in self.records]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DeclarationError("Two records have the same name.", schema=self.name, names=twice)
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
                    "Legacy keys differ from the record's keys before the first field alone.",
                    record=record.name,
                    key=record.template.text,
                    legacy=legacy.template.text,
                )
        prove([declared for _, declared in self.declared()], bound, self.overlaps)
