"""Types whose objects have private members, over all schemas of the process. Pure.

A declaration tells what its responses show. Two places have no declaration of what they hold: the
fields of an error, and a member of any type in the reply of an operation of one's own. Both ask
`hidden_in`, which costs nothing while no record of the process has private members.

A text that a program makes of a record cannot be examined: the message of its exception is in the
log. So the text of such a record itself leaves these members out.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from msgspec import Struct

__all__ = ["hidden_in", "hide", "mask"]

_hidden: WeakSet[type] = WeakSet()
_masked: WeakKeyDictionary[type, frozenset[str]] = WeakKeyDictionary()
_PLAIN: Final = frozenset({str, int, float, bool, type(None), bytes})


def hide(kind: type) -> None:
    """Declare that objects of a type, and of its subclasses, have private members."""
    _hidden.add(kind)


def mask(kind: type, names: Collection[str]) -> None:
    """Have `repr` and `str` of objects of a type show `…` in place of members, unless the type
    defines `__repr__`."""
    _masked[kind] = _masked.get(kind, frozenset()).union(names)
    printed: Any = kind
    if printed.__repr__ is Struct.__repr__:
        printed.__repr__ = _masked_text


def _masked_text(record: Struct) -> str:
    kind = type(record)
    names = frozenset[str]().union(*(_masked.get(base, ()) for base in kind.__mro__))
    parts = (
        f"{name}={'…' if name in names else repr(getattr(record, name, None))}"
        for name in kind.__struct_fields__
    )
    return f"{kind.__name__}({', '.join(parts)})"


def hidden_in(value: Any, most: int | None = None) -> type | None:
    """Return the type of an object with private members that a value is or holds, however deep, if
    there is one. If it holds more than `most` values, return its own type: not all are examined."""
    if not _hidden or type(value) in _PLAIN:
        return None
    queue, seen = [value], 0
    examined: dict[int, Any] = {}  # a value may hold itself
    while queue:
        found = queue.pop()
        if id(found) in examined:
            continue
        examined[id(found)] = found
        kind = type(found)
        if isinstance(found, dict):
            parts: Collection[Any] = (*found, *found.values())
        elif isinstance(found, list | tuple | set | frozenset):
            parts = found
        elif names := _attributes(kind):
            if any(base in _hidden for base in kind.__mro__):
                return kind
            parts = [getattr(found, name, None) for name in names]
        elif isinstance(found, Mapping):
            parts = (*found, *found.values())
        else:
            continue
        seen += len(parts)
        if most is not None and seen > most:
            return type(value)
        queue += [part for part in parts if type(part) not in _PLAIN]
    return None


def _attributes(kind: type) -> Sequence[str]:
    """Return the attributes of a type whose objects are encoded by them."""
    if issubclass(kind, Struct):
        return kind.__struct_fields__
    if hasattr(kind, "__attrs_attrs__"):
        return [each.name for each in kind.__attrs_attrs__]
    return [*getattr(kind, "__dataclass_fields__", ())]
