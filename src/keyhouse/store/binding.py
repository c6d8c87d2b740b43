"""Bindings: the declarations of a schema with the key fields of one space fixed."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from keyhouse.clock import IdSource
from keyhouse.engine import Check
from keyhouse.errors import UsageError
from keyhouse.schema import (
    NO_LINKS,
    BoundLink,
    Declared,
    Derived,
    Index,
    KeyMatch,
    Keys,
    Record,
    RecordLinks,
    Schema,
    deletion_job,
)
from keyhouse.schema.record_json import MemberSealer
from keyhouse.schema.schema import Finder

T = TypeVar("T")
D = TypeVar("D", bound=Derived)

_OWNERS_CACHED = 1_000


class SeenOwner(NamedTuple):
    """A record that others are linked to, as it was seen last, and its absent guard row: see
    `link_guard`."""

    record: Check
    guard: Check


class Binding:
    """Maps the declarations of a schema to their bound copies. Rejects those of other schemas.

    A record is bound when it is first needed: binding compiles its templates, and a service has
    many spaces of which it reads a few records each. The values of the fixed fields are checked at
    once.
    """

    __slots__ = (
        "_bound",
        "_finder",
        "_links",
        "_originals",
        "_records",
        "_sealer",
        "has_links",
        "ids",
        "schema",
        "seen_owners",
        "values",
        "writes_legacy_keys",
    )

    def __init__(
        self,
        schema: Schema,
        values: Mapping[str, object],
        *,
        writes_legacy_keys: bool = False,
        sealer: MemberSealer | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self.schema = schema
        self.ids = ids
        self._sealer = sealer
        self.writes_legacy_keys = writes_legacy_keys
        self.values = dict(values)
        self._bound: dict[int, Declared] = {}
        self._records: dict[int, Record[Any]] = {}
        self._originals: dict[int, Declared] = {}
        self._finder: Finder | None = None
        self.has_links = schema.has_links
        self._links: dict[int, RecordLinks] | None = None
        self.seen_owners: dict[str, SeenOwner] = {}
        """Some of the records that others are linked to, by key."""
        for _, declared in schema.declared():
            declared.template.check(self.values)

    def record(self, record: Record[T]) -> Record[T]:
        try:
            return self._records[id(record)]
        except KeyError:
            bound = self._bound.get(id(record)) or self._bind(record)
        if not isinstance(bound, Record):
            raise UsageError(
                "This is a derived row, not a record: give the record, and the row with `by`.",
                given=repr(record),
            )
        return bound

    def keys(self, *addresses: tuple[Record[Any], Mapping[str, object]]) -> list[str]:
        """Return the keys of records, each given by its key fields: for `get_each(ahead=…)`."""
        return [self.record(record).template.build(fields) for record, fields in addresses]

    def derived(self, derived: D, kind: type[Derived] = Derived) -> D:
        bound = self._bound.get(id(derived)) or self._bind(derived)
        if not isinstance(bound, kind):
            raise UsageError(
                "This is not a derived row of that kind.", given=repr(derived), needed=kind.__name__
            )
        return bound  # type: ignore[return-value]  # a copy has the type of the original

    def _bind(self, declared: Declared) -> Declared:
        owner = self.schema.owner(declared)
        if owner is None:
            raise self._foreign(declared)
        copy = owner.bind(self.values)
        if copy.sealed and self._sealer is not None:
            copy = copy.with_sealer(self._sealer)
        for record in self.schema.aliases(owner):
            for original, bound in zip(record.declarations(), copy.declarations(), strict=True):
                if self.schema.owner(original) not in (owner, None):
                    continue  # an older declaration may share derived rows with the schema's own
                self._bound[id(original)] = bound
                if isinstance(bound, Record):
                    self._records[id(original)] = bound
                self._originals[id(bound)] = original
        return self._bound[id(declared)]

    def original(self, bound: Record[T]) -> Record[T]:
        """Return the declaration of a bound record, as calls of a store take it."""
        return self._originals[id(bound)]  # type: ignore[return-value]  # a copy of a Record is one

    def index(self, record: Record[T], by: Index) -> tuple[Record[T], Index]:
        """Return a bound record and one of its indexes."""
        bound, index = self.record(record), self.derived(by)
        if index not in [each for each in bound.derived if isinstance(each, Index)]:
            raise UsageError("The record has no such index.", record=bound.name, given=repr(by))
        return bound, index

    def links(self, bound: Record[Any]) -> RecordLinks:
        """Return the links of a bound record to others, and those of others to it."""
        if self._links is None:
            self._links = self._bind_links()
        return self._links.get(id(bound), NO_LINKS)

    def former_owner_keys(self, former: Record[Any], value: Any, keys: Keys) -> set[str]:
        """Return the keys of the records that a record of an older declaration is linked to.
        `former` is bound."""
        return {
            key
            for link in former.links
            if self.schema.owner(link.record) is not None
            for key in BoundLink(
                link,
                former,
                self.record(link.record),
                tuple([self.derived(index) for index in link.by]),
            ).owner_keys(value, keys)
        }

    def saw_owner(self, key: str, owner: SeenOwner) -> None:
        """Remember a record that others are linked to: many are linked to the same few."""
        if len(self.seen_owners) >= _OWNERS_CACHED:
            self.seen_owners.clear()
        self.seen_owners[key] = owner

    def guard_key(self, bound: Record[Any], key: str) -> str:
        """Return the key of the row that announces the deletion of a record (see `link_guard`)."""
        assert self.schema.meta is not None  # a schema with links has one
        job = self.record(self.schema.meta.job)
        return job.template.join((deletion_job(bound.name, key),))

    def _bind_links(self) -> dict[int, RecordLinks]:
        found: dict[int, tuple[list[BoundLink], list[BoundLink]]] = {}
        for record in self.schema.records if self.has_links else ():
            for link in record.links:
                child, owner = self.record(record), self.record(link.record)
                bound = BoundLink(
                    link, child, owner, tuple([self.derived(index) for index in link.by])
                )
                found.setdefault(id(child), ([], []))[0].append(bound)
                found.setdefault(id(owner), ([], []))[1].append(bound)
        return {id: RecordLinks(*links) for id, links in found.items()}

    def records(self) -> list[Record[object]]:
        return [self.record(record) for record in self.schema.records]

    def declared(self, declared: Declared) -> Declared:
        """Return a record or a derived row as it is bound to the space."""
        return self.derived(declared) if isinstance(declared, Derived) else self.record(declared)

    def filters(self, bound: Declared) -> bool:
        """Return whether its scans must leave out rows of other templates."""
        return id(self._originals.get(id(bound))) in self.schema.filtered

    def find(self, key: str) -> KeyMatch | None:
        """Return the declaration and fields of a key of this space, or None."""
        if self._finder is None:
            self._finder = Finder(self.records())
        return self._finder.find(key)

    def _foreign(self, declared: Declared) -> UsageError:
        advice = ""
        if isinstance(declared, str):
            advice = " Give the declared object, such as CLIP or BY_TAG, not its name."
        return UsageError(
            f"The schema of this store has no such declaration.{advice}",
            given=repr(declared),
            schema=self.schema.name,
        )
