"""Records: typed values at a template, with the attributes that the store sets, and derived rows.

A `Record` is the declaration and the handle: `store.get(BOOK, id=…)` and `store.put(BOOK, book)`
take it, and return its type parameter. The value is a msgspec Struct, or any type that msgspec
reads from JSON.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from keyword import iskeyword
from operator import attrgetter
from typing import Any, ClassVar, Self, TypeVar

import msgspec

from keyhouse.arguments import checked
from keyhouse.errors import (
    DeclarationError,
    KeyFieldError,
    RecordError,
    UsageError,
)
from keyhouse.keys.template import Template, evaluated
from keyhouse.limits import TTL_SECONDS_MAX
from keyhouse.schema.compiled_rows import ChangedRules, Keys, RowSet, Source, attribute
from keyhouse.schema.derived import Derived, First
from keyhouse.schema.expiry import Expiry
from keyhouse.schema.field_types import (
    attach,
    check_field_types,
    check_given_fields,
    check_members,
    check_time_types,
)
from keyhouse.schema.links import Link, Owner, Reference
from keyhouse.schema.nearest import nearest
from keyhouse.schema.private_fields import private_fields
from keyhouse.schema.record_check import check_declaration
from keyhouse.schema.record_json import MemberSealer, RecordJson, is_struct, replaced
from keyhouse.schema.times import SECONDS, TimeFormat
from keyhouse.schema.timestamps import Timestamps

T = TypeVar("T")

_TTL_SECONDS_MIN = 0.001

_OFFERED = (
    *("name", "doc", "type", "template", "fields", "derived", "links", "expiry", "version"),
    *("private", "sealed", "attributes", "current", "legacy", "shown"),
)
"""Attributes of a record that completion offers."""


class Record(RecordJson[T]):
    """Declares that values of `type` are stored at `at`.

    - `fields`: key fields that are not attributes of the same name (`{"asset": "attr.assetId"}`).
      Key fields that the value does not hold are given with each call: with None, where one
      has nearly the name of an attribute.
    - `computed`: attributes that the store computes from the others at each write.
    - `version`: the attribute with the version of the JSON, and the version that this code writes.
    - `created`, `updated`: attributes stamped in the format of `times`.
    - `timestamps`: attributes that hold times (`"attr.update_time"` in a nested Struct): checked
      when they are written, and stored in UTC in the format of `times`.
    - `unknown`: `"keep"`, and a rewrite keeps the members of the stored row that this code does not
      know; or the attribute (a dict) that carries them.
    - `private`: attributes that `shown` leaves out. A service reads no derived row whose key holds
      one in clear, unless the row is declared `shown`.
    - `sealed`: attributes that are stored encrypted, with the store's key ring. Such an attribute
      feeds a key only as an HMAC: `{email:hmac}`.
    - `upgrade`: turns the JSON of an older version into the current one.
    - `legacy_at`: the keys that the record had before a key migration. A record is read at its
      current key, else at its legacy key; a write moves it to the current key and removes the
      legacy row in the same commit (unless the store has `writes_legacy_keys`). Scans, pages and
      counts merge both. The two templates differ only before their first field. `current` and
      `legacy` are the record at one of its two keys alone, for code that migrates keys.
    - `belongs_to`: the records that it is deleted with (see `links`).
    - `references`: the records that it refers to, which cannot be deleted meanwhile.
    """

    appended: ClassVar[bool] = False
    """True for logs: `append` writes their events, and `put` rejects them."""

    @checked(DeclarationError)
    def __init__(
        self,
        type: type[T],
        at: str | Template,
        *derived: Derived,
        name: str | None = None,
        doc: str = "",
        fields: Mapping[str, Source | None] | None = None,
        computed: Mapping[str, Callable[[Any], object]] | None = None,
        version: tuple[str, int] | None = None,
        created: str | None = None,
        updated: str | None = None,
        times: TimeFormat = SECONDS,
        timestamps: tuple[str, ...] = (),
        unknown: str | None = None,
        private: tuple[str, ...] = (),
        sealed: tuple[str, ...] = (),
        expiry: Expiry | None = None,
        upgrade: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        legacy_at: str | Template | None = None,
        belongs_to: Owner | tuple[Owner, ...] = (),
        references: Reference | tuple[Reference, ...] = (),
    ) -> None:
        super().__init__(
            type,
            version=version,
            unknown=unknown,
            private=private,
            expiry=expiry,
            upgrade=upgrade,
            sealed=sealed,
        )
        self.name = name or getattr(type, "__name__", "value").lower()
        self.doc = doc or (getattr(type, "__doc__", None) or "" if is_struct(type) else "")
        self.template = at if isinstance(at, Template) else Template(at)
        self.fields = {
            name: source for name, source in (fields or {}).items() if source is not None
        }
        self.computed = dict(computed or {})
        self.created = created
        self.updated = updated
        self.times = times
        self.derived = derived
        self.links: tuple[Link, ...] = (
            *((belongs_to,) if isinstance(belongs_to, Owner) else belongs_to),
            *((references,) if isinstance(references, Reference) else references),
        )
        self._compiled_address: Callable[[T, Mapping[str, object]], tuple[Keys, str]] | None = None
        self._is_addressable = False
        self.legacy: Record[T] | None = None
        self._current: Record[T] | None = None
        check_members(self._type_info, self.name, self.template, derived)
        check_given_fields(self._type_info, self.name, self.template, fields or ())
        check_declaration(self)
        self.timestamps = (
            Timestamps(type, timestamps, times, record=self.name) if timestamps else None
        )
        self._prepare_keys()
        for each in derived:
            attach(each, self.name, self.template, self.attributes, self.fields, self._type_info)
            each.private = private_fields(each, private, self.template)
        check_field_types(self._type_info, self.name, self.template, self.fields, derived)
        expires_at = expiry.field if expiry is not None and expiry.mode == "field" else None
        check_time_types(self._type_info, self.name, (created, updated, *timestamps), expires_at)
        self._prepare_rows()
        if legacy_at is not None:
            template = legacy_at if isinstance(legacy_at, Template) else Template(legacy_at)
            if self.appended or template.fields != self.template.fields:
                raise DeclarationError(
                    "Only a record has legacy keys, and they have the fields of its keys.",
                    record=self.name,
                    legacy=template.text,
                )
            self.legacy, self._current = self._alone_at(template), self._alone_at(self.template)
            self._prepare_rows()

    def __repr__(self) -> str:
        return f"Record({self.name} at {self.template.text!r})"

    def __dir__(self) -> list[str]:
        """List the declaration for completion, without what the store and the schema use."""
        return [*_OFFERED, *(name for name in object.__dir__(self) if name.startswith("__"))]

    @property
    def templates(self) -> list[Template]:
        """The templates of the record, of its legacy keys and of its derived rows."""
        legacy = [] if self.legacy is None else [self.legacy.template]
        return [self.template, *legacy, *(each.template for each in self.derived)]

    @property
    def current(self) -> "Record[T]":
        """The record at its current key alone, without derived rows, if it has legacy keys; else
        the record itself."""
        return self if self._current is None else self._current

    def legacy_key(self, key: str) -> str:
        """Return the legacy key of the record at this current key."""
        size, legacy_head = self._heads
        return legacy_head + key[size:]

    def current_key(self, key: str) -> str:
        """Return the current key of a record found at `key`, which may be its legacy key."""
        head = self.template.head
        if self.legacy is None or not key.startswith(self.legacy.template.head):
            return key
        if key.startswith(head) and self.template.split(key) is not None:
            return key
        return head + key[len(self.legacy.template.head) :]

    def _alone_at(self, template: Template) -> "Record[T]":
        alone = copy.copy(self)
        alone.template, alone.derived, alone.links = template, (), ()
        alone._prepare_keys()
        alone._prepare_rows()
        return alone

    @property
    def needs_previous(self) -> bool:
        """True if a write depends on the record that it replaces, even without derived rows."""
        return (
            self.created is not None
            or self.keeps_unknown
            or (self.expiry is not None and self.expiry.mode == "fixed")
        )

    def bind(self, values: Mapping[str, object]) -> Self:
        """Return a copy with some key fields fixed, as a store fixes those of its space."""
        if not any(template.changes_by(values) for template in self.templates):
            return self
        return self._moved(lambda template: template.bind(values))

    def under(self, prefix: Template) -> Self:
        """Return a copy with the text and fields of a template in front of all its keys."""
        return self._moved(lambda template: template.under(prefix))

    def declarations(self) -> "list[Declared]":
        """Return the record, its derived rows, and itself at its legacy and current key alone."""
        one_key = [] if self.legacy is None else [self.legacy, self.current]
        return [self, *self.derived, *one_key]

    def _moved(self, move: Callable[[Template], Template]) -> Self:
        moved = copy.copy(self)
        moved.template = move(self.template)
        moved._prepare_keys()
        copies = {
            id(each): each.moved(move(each.template), moved.template) for each in self.derived
        }
        for each in copies.values():
            if isinstance(each, First):
                each.among = copies[id(each.among)]  # type: ignore[assignment]  # a copy of an Index is one
        moved.derived = tuple(copies.values())
        if self.legacy is not None:
            moved.legacy, moved._current = self.legacy._moved(move), self.current._moved(move)
        moved._prepare_rows()
        return moved

    def with_sealer(self, sealer: MemberSealer) -> Self:
        bound = super().with_sealer(sealer)
        if bound.legacy is not None and bound._current is not None:
            bound.legacy = bound.legacy.with_sealer(sealer)
            bound._current = bound._current.with_sealer(sealer)
        return bound

    def keys(self, value: T, given: Mapping[str, object]) -> Keys:
        """Return the values of the record's key: from the value, else as given. Raises if both
        differ."""
        try:
            if given.keys() == self._not_held:
                return tuple(
                    [
                        given[name] if held is None else held(value)
                        for name, held in self._holders.items()
                    ]
                )
            return tuple(self._key_values(value, given))
        except AttributeError as error:
            raise self.other_type(value, error) from error

    def address(self, value: T, given: Mapping[str, object]) -> tuple[Keys, str]:
        """Return the values of the record's key, as a read of the key gives them, and the key."""
        if self._is_addressable and given.keys() == self._not_held:
            if self._compiled_address is None:
                self._compiled_address = self._compile_address()
            try:
                return self._compiled_address(value, given)
            except (ValueError, TypeError, AttributeError):
                pass  # what follows raises an error that names the field
        keys = self.keys(value, given)
        key = self.template.join(keys)
        return self.template.as_read(key, keys), key

    def _compile_address(self) -> Callable[[T, Mapping[str, object]], tuple[Keys, str]]:
        """Compile `address` for a value that holds fields of its key as attributes, and the others
        as given: every put needs it."""
        sources = [
            f"g[{name!r}]" if name in self._not_held else f"v.{source}"
            for name, source in zip(self.template.fields, self._key_sources(), strict=True)
        ]
        key, scope = self.template.expression(sources)
        compiled: Callable[[T, Mapping[str, object]], tuple[Keys, str]] = evaluated(
            f"lambda v, g: (({''.join(f'{source}, ' for source in sources)}), {key})", scope
        )
        return compiled

    def _key_sources(self) -> list[Any]:
        return [self.fields.get(name, name) for name in self.template.fields]

    def compute(self, value: T) -> T:
        """Return the value with its computed attributes set: a copy, if one of them changes."""
        if not self.computed:
            return value
        try:
            made = {name: make(value) for name, make in self.computed.items()}
            changes = {name: new for name, new in made.items() if new is not getattr(value, name)}
            return replaced(value, changes) if changes else value
        except (AttributeError, TypeError, ValueError):
            self.encode(value)  # raises RecordError for a value of the wrong type
            raise

    def stamp(self, value: T, before: T | None, now: int) -> T:
        """Return the value with its version and times set. `before` is the record it replaces."""
        if not self.is_stamped:
            return value
        changes: dict[str, object] = {}
        if self.version is not None:
            name, number = self.version
            found = getattr(value, name, None)
            if found != number or type(found) is not int or hasattr(value, "__post_init__"):
                changes[name] = number
        if self.created is not None or self.updated is not None:
            time = self.times.format(now)
            if self.created is not None:
                changes[self.created] = time if before is None else getattr(before, self.created)
            if self.updated is not None:
                changes[self.updated] = time
        return replaced(value, changes) if changes else value

    def versioned(self, value: T) -> T:
        """Return the value with its version set, and the times that it has."""
        return (
            value if self.version is None else replaced(value, {self.version[0]: self.version[1]})
        )

    @property
    def takes_ttl(self) -> bool:
        """Return whether a write may give the record a TTL."""
        return self.expiry is not None and self.expiry.mode != "field"

    def no_ttl(self) -> UsageError:
        """Return the error of a TTL for a record that takes none."""
        return UsageError(
            "The record is not declared to expire by a TTL: a TTL needs `expiry=per_write()`.",
            record=self.name,
        )

    def expires(self, value: T, before: int | None, ttl: float | None, now: int) -> int | None:
        """Return the expiry of a record written now. `before` is that of the one it replaces."""
        mode = self.expiry.mode if self.expiry is not None else None
        if ttl is not None:
            return now + _ttl_milliseconds(ttl, self)
        if mode is None or mode == "write" or self.expiry is None:
            return None
        if mode == "field":
            text = attribute(self.expiry.field)(value)
            return None if text is None or text is msgspec.UNSET else self.times.parse(text)
        if mode == "fixed" and before is not None:
            return before
        return now + self.expiry.seconds * 1_000

    def _prepare_keys(self) -> None:
        self._holders = {name: self._make_holder(name) for name in self.template.fields}
        self._not_held = {name for name, held in self._holders.items() if held is None}
        self.holds_no_key_field = len(self._not_held) == len(self._holders)
        self._compiled_address = None
        self._is_addressable = not self.template.normalizes and all(
            name in self._not_held or (source in self.attributes and not iskeyword(source))
            for name, source in zip(self.template.fields, self._key_sources(), strict=True)
        )
        self.is_stamped = any(
            mark is not None for mark in (self.version, self.created, self.updated)
        )

    def _prepare_rows(self) -> None:
        """Sort the derived rows: `owned` ones belong to this record alone, `shared_rows` also to
        others.

        `is_single_row`: a put writes one row, whatever was there before, so it need not read.
        """
        self.owned = tuple(each for each in self.derived if each.strategy == "put")
        self.owned_rows = RowSet(each.rule for each in self.owned)
        self._changed_owned = ChangedRules(each.rule for each in self.owned)
        self._heads = (
            len(self.template.head),
            "" if self.legacy is None else self.legacy.template.head,
        )
        self.shared_rows = tuple(each for each in self.derived if each.strategy != "put")
        self._changed_shared = ChangedRules(each.rule for each in self.shared_rows)
        self.is_single_row = not self.derived and not self.needs_previous and self.legacy is None

    def changed_owned(self, before: T, after: T) -> list[Derived]:
        """Return those of `owned` whose rows may differ between two states of a record."""
        return [self.owned[at] for at in self._changed_owned.between(before, after)]

    def changed_shared(self, before: T, after: T) -> list[Derived]:
        """Return those of `shared_rows` that may differ between two states of a record."""
        return [self.shared_rows[at] for at in self._changed_shared.between(before, after)]

    def holder(self, name: str) -> Callable[[Any], object] | None:
        """Return a reader of a key field from a value; None if the value does not hold it."""
        return self._holders[name] if name in self._holders else self._make_holder(name)

    def _make_holder(self, name: str) -> Callable[[Any], object] | None:
        source = self.fields.get(name, name)
        if callable(source):
            return source
        return attrgetter(source) if source.partition(".")[0] in self.attributes else None

    def _key_values(self, value: T, given: Mapping[str, object]) -> Iterator[object]:
        if others := sorted(set(given) - set(self.template.fields)):
            raise UsageError(
                "The record's key has no such field.",
                fields=others,
                **nearest(others[0], self.template.fields),
                template=self.template.text,
            )
        for name, held in self._holders.items():
            if held is None:
                if name not in given:
                    raise KeyFieldError(
                        "The key needs a field that was not given.",
                        field=name,
                        template=self.template.text,
                        **nearest(name, self.attributes),
                    )
                yield given[name]
                continue
            found = held(value)
            if name in given and given[name] != found:
                raise KeyFieldError(
                    "The record has another value there.",
                    field=name,
                    given=given[name],
                    record=found,
                )
            yield found


Declared = Record[Any] | Derived
"""Has a template: a record, or a row derived from one."""


def _ttl_milliseconds(ttl: float, record: Record[Any]) -> int:
    if not record.takes_ttl:
        raise record.no_ttl()
    if type(ttl) not in (int, float) or not _TTL_SECONDS_MIN <= ttl <= TTL_SECONDS_MAX:
        raise RecordError(
            "A TTL is a number of seconds.", ttl=ttl, least=_TTL_SECONDS_MIN, most=TTL_SECONDS_MAX
        )
    return round(ttl * 1_000)
