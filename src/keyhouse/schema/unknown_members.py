"""Members of a record's JSON that this code does not know: newer code or another program wrote them.

A rewrite keeps them where they are: at the top, in a nested object, in an item of a list that has
not changed otherwise. The known members of a type form a tree: objects with their members, and
lists and maps with what they hold.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from msgspec import inspect

__all__ = ["KnownMembers", "known_members"]

_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_LISTS = (
    inspect.ListType,
    inspect.VarTupleType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.CollectionType,
)


class KnownPart(Protocol):
    """The known members of one part of a type's JSON."""

    def first_unknown(self, plain: Any) -> str | None:
        """Return the path of a member that is not known, or None."""

    def known_part(self, plain: Any) -> Any:
        """Return parsed JSON without its unknown members."""

    def keep(self, stored: Any, written: Any, *, by_position: bool = False) -> None:
        """Add the unknown members of stored JSON to the JSON that replaces it.

        An item of a list is the stored one whose known members it has; `by_position`, the one at
        its place: for JSON of which the list was just read.
        """


class KnownMembers:
    """The members of an object, and what is known of their values."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names
        self.values: dict[str, KnownPart] = {}

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
            found = None if known is None else known.first_unknown(plain.get(name))
            if found is not None:
                return _joined(name, found)
        return None

    def known_part(self, plain: Any) -> Any:
        if not isinstance(plain, dict):
            return plain
        return {
            name: self.values[name].known_part(part) if name in self.values else part
            for name, part in plain.items()
            if name in self.names
        }

    def keep(self, stored: Any, written: Any, *, by_position: bool = False) -> None:
        if not isinstance(stored, dict) or not isinstance(written, dict):
            return
        for name, known in self.values.items():
            known.keep(stored.get(name), written.get(name), by_position=by_position)
        for name, part in stored.items():
            if name not in self.names:
                written.setdefault(name, part)


class _KnownItems:
    """The items of a list."""

    def __init__(self, item: KnownPart) -> None:
        self._item = item

    def first_unknown(self, plain: Any) -> str | None:
        for at, item in enumerate(_items(plain)):
            if (found := self._item.first_unknown(item)) is not None:
                return _joined(f"[{at}]", found)
        return None

    def known_part(self, plain: Any) -> Any:
        return [self._item.known_part(item) for item in plain] if isinstance(plain, list) else plain

    def keep(self, stored: Any, written: Any, *, by_position: bool = False) -> None:
        if by_position and len(_items(stored)) == len(_items(written)):
            for one, other in zip(_items(stored), _items(written), strict=True):
                self._item.keep(one, other, by_position=True)
            return
        left = [item for item in _items(stored) if self._item.first_unknown(item) is not None]
        for item in _items(written) if left else ():
            for at, candidate in enumerate(left):
                if self._item.known_part(candidate) == item:
                    self._item.keep(left.pop(at), item)
                    break


class _KnownMap:
    """The values of an object whose members have any name."""

    def __init__(self, value: KnownPart) -> None:
        self._value = value

    def first_unknown(self, plain: Any) -> str | None:
        for name, part in plain.items() if isinstance(plain, dict) else ():
            if (found := self._value.first_unknown(part)) is not None:
                return _joined(name, found)
        return None

    def known_part(self, plain: Any) -> Any:
        if not isinstance(plain, dict):
            return plain
        return {name: self._value.known_part(part) for name, part in plain.items()}

    def keep(self, stored: Any, written: Any, *, by_position: bool = False) -> None:
        if isinstance(stored, dict) and isinstance(written, dict):
            for name in stored.keys() & written.keys():
                self._value.keep(stored[name], written[name], by_position=by_position)


class _KnownChoice:
    """A value of one of several types: the tag of a Struct says which."""

    def __init__(
        self,
        tag_field: str | None,
        tagged: dict[Any, KnownPart],
        lists: KnownPart | None,
        other: KnownPart | None,
    ) -> None:
        self._tag_field = tag_field
        self._tagged = tagged
        self._lists = lists
        self._other = other

    def _of(self, plain: Any) -> KnownPart | None:
        if isinstance(plain, list):
            return self._lists
        if isinstance(plain, dict) and self._tag_field in plain:
            tag = plain[self._tag_field]
            return self._tagged.get(tag) if isinstance(tag, (str, int)) else None
        return self._other

    def first_unknown(self, plain: Any) -> str | None:
        known = self._of(plain)
        return None if known is None else known.first_unknown(plain)

    def known_part(self, plain: Any) -> Any:
        known = self._of(plain)
        return plain if known is None else known.known_part(plain)

    def keep(self, stored: Any, written: Any, *, by_position: bool = False) -> None:
        known = self._of(written)
        if known is not None and self._of(stored) is known:
            known.keep(stored, written, by_position=by_position)


def known_members(info: inspect.Type) -> KnownMembers | None:
    """Return the members of a Struct type; None for a type of any other kind."""
    found = _known(info, {})
    return found if isinstance(found, KnownMembers) else None


def _known(info: inspect.Type, seen: dict[object, KnownMembers]) -> KnownPart | None:
    """Return what is known of a type; None if any member may be there. `seen` has the types that
    this one is inside of: a type may hold itself."""
    if isinstance(info, inspect.Metadata):
        return _known(info.type, seen)
    if isinstance(info, _OBJECTS):
        return None if getattr(info, "array_like", False) else _known_object(info, seen)
    if isinstance(info, _LISTS):
        item = _known(info.item_type, seen)
        return None if item is None else _KnownItems(item)
    if isinstance(info, inspect.DictType):
        value = _known(info.value_type, seen)
        return None if value is None else _KnownMap(value)
    return _known_choice(info, seen) if isinstance(info, inspect.UnionType) else None


def _known_object(info: Any, seen: dict[object, KnownMembers]) -> KnownMembers:
    if info.cls in seen:
        return seen[info.cls]
    tag = [] if getattr(info, "tag_field", None) is None else [info.tag_field]
    found = KnownMembers(frozenset([*(each.encode_name for each in info.fields), *tag]))
    inside = {**seen, info.cls: found}
    for field in info.fields:
        if (known := _known(field.type, inside)) is not None:
            found.values[field.encode_name] = known
    return found


def _known_choice(info: inspect.UnionType, seen: dict[object, KnownMembers]) -> KnownPart | None:
    options = [*_options(info)]
    tagged = {
        each.tag: known
        for each in options
        if getattr(each, "tag_field", None) is not None and (known := _known(each, seen))
    }
    tag_field = next((each.tag_field for each in options if hasattr(each, "tag_field")), None)
    lists = [_known(each, seen) for each in options if isinstance(each, _LISTS)]
    others = [
        _known(each, seen)
        for each in options
        if not isinstance(each, _LISTS) and getattr(each, "tag_field", None) is None
    ]
    [of_lists] = lists or [None]
    other = next((each for each in others if each is not None), None)
    if not tagged and of_lists is None:
        return other
    return _KnownChoice(tag_field, tagged, of_lists, other)


def _options(info: inspect.UnionType) -> Iterator[Any]:
    for each in info.types:
        yield each.type if isinstance(each, inspect.Metadata) else each


def _joined(name: str, path: str) -> str:
    return name + path if path.startswith("[") else f"{name}.{path}"


def _items(plain: Any) -> list[Any]:
    return plain if isinstance(plain, list) else []
