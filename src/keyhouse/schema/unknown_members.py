"""Members of a stored row that this code does not know: newer code or another program wrote them.

A rewrite keeps them where they are: at the top, in a nested object, in an item of a list that has
not changed otherwise.
"""

from typing import Any

import msgspec
from msgspec import inspect


class KnownMembers(msgspec.Struct):
    """The members of a Struct's JSON, and those of the Structs inside it."""

    names: frozenset[str]
    objects: dict[str, "KnownMembers"]
    lists: dict[str, "KnownMembers"]

    def are_all_of(self, plain: Any) -> bool:
        """Tell whether parsed JSON has no other members."""
        if not isinstance(plain, dict):
            return True
        return (
            plain.keys() <= self.names
            and all(known.are_all_of(plain.get(name)) for name, known in self.objects.items())
            and all(
                known.are_all_of(item)
                for name, known in self.lists.items()
                for item in _items(plain.get(name))
            )
        )

    def first_unknown(self, plain: Any) -> str | None:
        """Return the path of a member that is not known, or None."""
        if not isinstance(plain, dict):
            return None
        for name in plain:
            if name not in self.names:
                return str(name)
        for name, known in self.objects.items():
            if (found := known.first_unknown(plain.get(name))) is not None:
                return f"{name}.{found}"
        for name, known in self.lists.items():
            for at, item in enumerate(_items(plain.get(name))):
                if (found := known.first_unknown(item)) is not None:
                    return f"{name}[{at}].{found}"
        return None

    def keep(self, stored: Any, written: Any) -> None:
        """Add the unknown members of stored JSON to the JSON that replaces it."""
        if not isinstance(stored, dict) or not isinstance(written, dict):
            return
        for name, known in self.objects.items():
            known.keep(stored.get(name), written.get(name))
        for name, known in self.lists.items():
            known.keep_in_items(_items(stored.get(name)), _items(written.get(name)))
        for name, part in stored.items():
            if name not in self.names:
                written.setdefault(name, part)

    def keep_in_items(self, stored: list[Any], written: list[Any]) -> None:
        """Keep the unknown members of each item whose known members are still in the list."""
        left = [item for item in stored if not self.are_all_of(item)]
        for item in written if left else ():
            for at, candidate in enumerate(left):
                if self._known_part(candidate) == item:
                    self.keep(left.pop(at), item)
                    break

    def _known_part(self, item: dict[str, Any]) -> dict[str, Any]:
        return {name: part for name, part in item.items() if name in self.names}


def known_members(info: inspect.Type, seen: frozenset[object] = frozenset()) -> KnownMembers | None:
    """Return the members of a Struct type; None for a type of any other kind."""
    structs = [
        each
        for each in (info, *getattr(info, "types", ()))
        if isinstance(each, inspect.StructType) and each.cls not in seen and not each.array_like
    ]
    if len(structs) != 1:
        return None
    [struct] = structs
    objects: dict[str, KnownMembers] = {}
    lists: dict[str, KnownMembers] = {}
    for field in struct.fields:
        inside = seen | {struct.cls}
        if (known := known_members(field.type, inside)) is not None:
            objects[field.encode_name] = known
        for each in (field.type, *getattr(field.type, "types", ())):
            of_items = each.item_type if isinstance(each, inspect.ListType) else None
            if of_items and (known := known_members(of_items, inside)) is not None:
                lists[field.encode_name] = known
    names = frozenset(field.encode_name for field in struct.fields)
    tag = frozenset() if struct.tag_field is None else frozenset([struct.tag_field])
    return KnownMembers(names | tag, objects, lists)


def _items(plain: Any) -> list[Any]:
    return plain if isinstance(plain, list) else []
