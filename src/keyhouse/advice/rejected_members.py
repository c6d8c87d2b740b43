"""The member of JSON from outside that its type forbids, or a text that is not a choice of it,
with those that are known in its place.

msgspec rejects it by a text; a client is helped by the names that it could have meant.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect

from keyhouse.advice.nearest import NAME_CHARS_MAX, nearest

__all__ = ["rejected_in", "rejected_member"]

_CHOICES = (inspect.LiteralType, inspect.EnumType)
_LISTS = (inspect.ListType, inspect.VarTupleType, inspect.SetType, inspect.FrozenSetType)


_type_info = lru_cache(256)(inspect.type_info)
"""It takes half a millisecond, and malformed requests may be many."""


class _Rejected(NamedTuple):
    path: str
    name: str
    known: list[str]
    is_value: bool = False


def rejected_member(type: Any, plain: Any) -> dict[str, object]:
    """Return the first member of parsed JSON that its type forbids, as fields of an error: its
    path, the known members and the nearest of them; nothing if there is none. A text that is not
    one of the member's choices is its `value`, with those choices."""
    try:
        info = _type_info(type)
    except TypeError:  # a type with examples has no hash
        info = inspect.type_info(type)
    found = _first(info, plain, "")
    if found is None:
        return {}
    name, near = found.name[:NAME_CHARS_MAX], nearest(found.name, found.known)
    if found.is_value:
        return {"member": found.path.removeprefix("."), "value": name, **near}
    return {"member": f"{found.path}.{name}".removeprefix("."), **near}


def rejected_in(type: Any, text: bytes | msgspec.Raw) -> dict[str, object]:
    """Return the same of the text of JSON; nothing if it holds a number that no value can."""
    try:
        return rejected_member(type, msgspec.json.decode(text))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}


def _first(info: inspect.Type, plain: Any, path: str) -> _Rejected | None:
    if isinstance(info, inspect.Metadata):
        return _first(info.type, plain, path)
    if isinstance(info, inspect.UnionType):
        parts = [(each, plain, path) for each in info.types]
        meant = [each for each in info.types if isinstance(each, (inspect.StructType, *_CHOICES))]
        if len(meant) > 1:  # which one was meant is not known here
            return None
        if isinstance(plain, str) and not all(
            isinstance(each, (inspect.NoneType, *_CHOICES)) for each in info.types
        ):
            return None
    elif isinstance(info, inspect.StructType) and isinstance(plain, dict) and not info.array_like:
        types = {field.encode_name: field.type for field in info.fields}
        if info.forbid_unknown_fields:
            for name in plain:
                if name not in types and name != info.tag_field:
                    return _Rejected(path, name, [*types])
        parts = [(kind, plain.get(name), f"{path}.{name}") for name, kind in types.items()]
    elif isinstance(info, _LISTS) and isinstance(plain, list):
        parts = [(info.item_type, each, f"{path}[{at}]") for at, each in enumerate(plain)]
    elif isinstance(info, inspect.DictType) and isinstance(plain, dict):
        parts = [(info.value_type, each, f"{path}.{name}") for name, each in plain.items()]
    elif isinstance(info, _CHOICES) and isinstance(plain, str):
        choices = info.values if isinstance(info, inspect.LiteralType) else info.cls
        known = [str(getattr(each, "value", each)) for each in choices]
        return None if plain in known else _Rejected(path, plain, known, is_value=True)
    else:
        return None
    return next(filter(None, (_first(*part) for part in parts)), None)
