"""Members of a record's JSON that this code does not know, from newer code or another program.

A rewrite keeps them where they are: at the top, in a nested object, in an item of a list that has
not changed otherwise. The known members of a type form a tree: objects with their members, and
lists, tuples and maps with what they hold.

The items of two lists are paired by their values, never by their places: a set has no order, and a
computed attribute or `__post_init__` may sort a list or fill it. Two items are the same if they
decode as equal values, so defaults and other spellings of a value make no difference. Of several
items of one value, the first is paired with the first; if fewer are written than there were, those
without unknown members are left out before others. Only a tuple has a meaning for each place.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Protocol

import msgspec
from msgspec import inspect

from keyhouse.schema import document

__all__ = ["KnownMembers", "KnownPart", "known_members", "known_part", "without_former"]

_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_LISTS = (
    inspect.ListType,
    inspect.VarTupleType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.CollectionType,
)
_SETS = (inspect.SetType, inspect.FrozenSetType)
_ARRAYS = (*_LISTS, inspect.TupleType, inspect.NamedTupleType)

_encoder = msgspec.json.Encoder(order="deterministic")


class KnownPart(Protocol):
    """The known members of one part of a type's JSON."""

    def first_unknown(self, plain: Any) -> str | None:
        """Return the path of a member that is not known, or None."""

    def identity(self, plain: Any) -> bytes:
        """Return bytes that are the same for all JSON that decodes as the same value."""

    def keep(self, stored: Any, written: Any) -> None:
        """Add the unknown members of stored JSON to the JSON that replaces it."""


class KnownMembers:
    """The members of an object, and what is known of their values."""

    def __init__(self, type: Any, names: frozenset[str]) -> None:
        self.names = names
        self.values: dict[str, KnownPart] = {}
        self._type = type

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._type)

    def first_unknown(self, plain: Any) -> str | None:
        if not isinstance(plain, dict):
            return None
        for name in plain:
            if name not in self.names:
                return str(name)
        return self.first_unknown_inside(plain)

    def first_unknown_inside(self, plain: Any, names: Iterable[str] | None = None) -> str | None:
        """Return the path of an unknown member below the object's own, or below some of them."""
        for name in self.values if names is None else names:
            known = self.values.get(name)
            unknown = None if known is None else known.first_unknown(plain.get(name))
            if unknown is not None:
                return _joined(name, unknown)
        return None

    def identity(self, plain: Any) -> bytes:
        if not isinstance(plain, dict):
            return _identity(plain)
        try:
            return _identity(self._decoder.decode(document.encode_checked(plain)))
        except msgspec.ValidationError:  # the record rejects it, or replaces it
            return _identity(plain)

    def keep(self, stored: Any, written: Any) -> None:
        if not isinstance(stored, dict) or not isinstance(written, dict):
            return
        for name, known in self.values.items():
            known.keep(stored.get(name), written.get(name))
        for name, part in stored.items():
            if name not in self.names:
                written.setdefault(name, part)


def without_former(plain: Any, former: KnownMembers, known: KnownMembers) -> Any:
    """Return JSON without the members that an older type had and this one does not."""
    if not isinstance(plain, dict):
        return plain
    kept = {}
    for name, part in plain.items():
        if name in former.names and name not in known.names:
            continue
        inside = former.values.get(name), known.values.get(name)
        if isinstance(inside[0], KnownMembers) and isinstance(inside[1], KnownMembers):
            part = without_former(part, inside[0], inside[1])
        kept[name] = part
    return kept


class _KnownItems:
    """The items of a list, or of a set."""

    def __init__(self, item: KnownPart, *, is_set: bool) -> None:
        self._item = item
        self._is_set = is_set

    def first_unknown(self, plain: Any) -> str | None:
        for at, item in enumerate(_items(plain)):
            if (unknown := self._item.first_unknown(item)) is not None:
                return _joined(f"[{at}]", unknown)
        return None

    def identity(self, plain: Any) -> bytes:
        identities = [self._item.identity(item) for item in _items(plain)]
        return _identity(sorted(identities) if self._is_set else identities)

    def keep(self, stored: Any, written: Any) -> None:
        if self.first_unknown(stored) is None:
            return
        before = self._by_identity(stored)
        for identity, items in self._by_identity(written).items():
            for one, other in self._pairs(before[identity], items):
                self._item.keep(one, other)

    def _by_identity(self, plain: Any) -> defaultdict[bytes, list[Any]]:
        by_identity = defaultdict(list)
        for item in _items(plain):
            by_identity[self._item.identity(item)].append(item)
        return by_identity

    def _pairs(self, stored: list[Any], written: list[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield the stored item of each written one, all of them of one value. An item that is
        written with unknown members has no others: it is the stored one that has the same."""
        if len(stored) == len(written) == 1 and not self._has_unknown(written[0]):
            yield stored[0], written[0]
            return
        left, others = list(stored), []
        for item in written:
            if self._has_unknown(item) and item in left:
                left.remove(item)
            else:
                others.append(item)
        surplus = len(left) - len(others)
        for item in stored if surplus > 0 else ():
            if surplus and not self._has_unknown(item):
                left.remove(item)
                surplus -= 1
        for one, other in zip(left, others, strict=False):
            if not self._has_unknown(other):
                yield one, other

    def _has_unknown(self, item: Any) -> bool:
        return self._item.first_unknown(item) is not None


class _KnownPlaces:
    """The parts of a tuple, each with its own type: None if nothing is known of it."""

    def __init__(self, parts: list[KnownPart | None]) -> None:
        self._parts = parts

    def first_unknown(self, plain: Any) -> str | None:
        for at, (known, part) in enumerate(zip(self._parts, _items(plain), strict=False)):
            unknown = None if known is None else known.first_unknown(part)
            if unknown is not None:
                return _joined(f"[{at}]", unknown)
        return None

    def identity(self, plain: Any) -> bytes:
        parts = zip(self._parts, _items(plain), strict=False)
        return _identity(
            [_identity(part) if known is None else known.identity(part) for known, part in parts]
        )

    def keep(self, stored: Any, written: Any) -> None:
        for known, one, other in zip(self._parts, _items(stored), _items(written), strict=False):
            if known is not None:
                known.keep(one, other)


class _KnownMap:
    """The values of an object whose members have any name."""

    def __init__(self, value: KnownPart) -> None:
        self._value = value

    def first_unknown(self, plain: Any) -> str | None:
        for name, part in plain.items() if isinstance(plain, dict) else ():
            if (unknown := self._value.first_unknown(part)) is not None:
                return _joined(name, unknown)
        return None

    def identity(self, plain: Any) -> bytes:
        if not isinstance(plain, dict):
            return _identity(plain)
        return _identity({name: self._value.identity(part) for name, part in plain.items()})

    def keep(self, stored: Any, written: Any) -> None:
        if isinstance(stored, dict) and isinstance(written, dict):
            for name in stored.keys() & written.keys():
                self._value.keep(stored[name], written[name])


class _KnownChoice:
    """A value of one of several types: its kind of JSON and the tag of a Struct say which.

    Objects and arrays are each by tag; None: for any other tag, or none.
    """

    def __init__(
        self,
        tag_field: str | None,
        objects: dict[Any, KnownPart],
        arrays: dict[Any, KnownPart],
    ) -> None:
        self._tag_field = tag_field
        self._objects = objects
        self._arrays = arrays

    def _of(self, plain: Any) -> KnownPart | None:
        if isinstance(plain, dict):
            options, tag = self._objects, plain.get(self._tag_field)
        else:
            options, tag = self._arrays, next(iter(_items(plain)), None)
        members = options.get(tag) if isinstance(tag, (str, int)) else None
        return options.get(None) if members is None else members

    def first_unknown(self, plain: Any) -> str | None:
        known = self._of(plain)
        return None if known is None else known.first_unknown(plain)

    def identity(self, plain: Any) -> bytes:
        known = self._of(plain)
        return _identity(plain) if known is None else known.identity(plain)

    def keep(self, stored: Any, written: Any) -> None:
        known = self._of(written)
        if known is not None and self._of(stored) is known:
            known.keep(stored, written)


def known_part(info: inspect.Type) -> KnownPart | None:
    """Return the members of the objects of a type; None if any member may be there."""
    return _known(info, {})


def known_members(info: inspect.Type) -> KnownMembers | None:
    """Return the members of a Struct type; None for a type of any other kind."""
    part = known_part(info)
    return part if isinstance(part, KnownMembers) else None


def _known(info: inspect.Type, seen: dict[object, KnownPart]) -> KnownPart | None:
    """Return what is known of a type; None if any member may be there. `seen` has the types that
    this one is inside of: a type may hold itself."""
    if isinstance(info, inspect.Metadata):
        return _known(info.type, seen)
    if isinstance(info, inspect.TupleType):
        parts = [_known(each, seen) for each in info.item_types]
        return _KnownPlaces(parts) if any(parts) else None
    if isinstance(info, inspect.NamedTupleType) or getattr(info, "array_like", False):
        return _known_array(info, seen)
    if isinstance(info, _OBJECTS):
        return _known_object(info, seen)
    if isinstance(info, _LISTS):
        item = _known(info.item_type, seen)
        return None if item is None else _KnownItems(item, is_set=isinstance(info, _SETS))
    if isinstance(info, inspect.DictType):
        value = _known(info.value_type, seen)
        return None if value is None else _KnownMap(value)
    return _known_choice(info, seen) if isinstance(info, inspect.UnionType) else None


def _known_object(info: Any, seen: dict[object, KnownPart]) -> KnownPart:
    if info.cls in seen:
        return seen[info.cls]
    tag = [] if getattr(info, "tag_field", None) is None else [info.tag_field]
    members = KnownMembers(info.cls, frozenset([*(each.encode_name for each in info.fields), *tag]))
    inside = {**seen, info.cls: members}
    for field in info.fields:
        if (known := _known(field.type, inside)) is not None:
            members.values[field.encode_name] = known
    return members


def _known_array(info: Any, seen: dict[object, KnownPart]) -> KnownPart | None:
    """Return what is known of an object that is an array in JSON: its tag, if any, and fields."""
    if info.cls in seen:
        return seen[info.cls]
    parts: list[KnownPart | None] = [] if getattr(info, "tag", None) is None else [None]
    places = _KnownPlaces(parts)
    inside = {**seen, info.cls: places}
    parts += [_known(field.type, inside) for field in info.fields]
    return places if any(parts) else None


def _known_choice(info: inspect.UnionType, seen: dict[object, KnownPart]) -> KnownPart | None:
    objects: dict[Any, KnownPart] = {}
    arrays: dict[Any, KnownPart] = {}
    tag_field = None
    for each in _options(info):
        known = _known(each, seen)
        if known is not None:
            options = arrays if _is_array(each) else objects
            options[getattr(each, "tag", None)] = known
            tag_field = getattr(each, "tag_field", None) or tag_field
    if len(objects) == 1:
        [only] = objects.values()
        objects = {None: only}  # its tag may be left out
    if not arrays and not objects.keys() - {None}:
        return objects.get(None)
    return _KnownChoice(tag_field, objects, arrays)


def _is_array(info: inspect.Type) -> bool:
    return isinstance(info, _ARRAYS) or getattr(info, "array_like", False)


def _options(info: inspect.UnionType) -> Iterator[Any]:
    for each in info.types:
        yield each.type if isinstance(each, inspect.Metadata) else each


def _joined(name: str, path: str) -> str:
    return name + path if path.startswith("[") else f"{name}.{path}"


def _items(plain: Any) -> list[Any] | tuple[Any, ...]:
    return plain if isinstance(plain, (list, tuple)) else []


def _identity(value: Any) -> bytes:
    """Return the JSON of a value with its maps and sets in one order."""
    try:
        return _encoder.encode(value)
    except TypeError:  # a set of Structs, which have no order
        return _encoder.encode(_ordered(value))


def _ordered(value: Any) -> Any:
    """Return the type and the parts of a value that holds sets, with each set in one order."""
    if isinstance(value, Mapping):
        return {name: _identity(part) for name, part in value.items()}
    parts = document.parts(value)
    assert parts is not None, "a scalar is encoded"
    identities = [_identity(part) for part in parts]
    return [
        type(value).__name__,
        sorted(identities) if isinstance(value, (set, frozenset)) else identities,
    ]
