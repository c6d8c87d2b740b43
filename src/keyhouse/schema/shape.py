"""The shape of a JSON value in words, with members in their order.

    {"id": text, "position": number | null, "status": "active" | "disabled", "tags": [text, …]}

Text in quotes is literal. A member whose name is followed by `?` may be absent.
"""

from typing import Any

import msgspec
from msgspec import inspect

_WORDS: dict[type[inspect.Type], str] = {
    inspect.AnyType: "any JSON",
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.DateTimeType: "time",
    inspect.DateType: "day",
    inspect.BytesType: "text in base 64",
}
_ROW_CHARS_MAX = 100
"""Longest object on one line."""


def shape(type_: Any, *, unknown: str | None = None) -> str:
    """Return the shape of a type that msgspec decodes from JSON.

    `unknown` is the attribute that holds unknown members; in JSON they are among the others.
    """
    return _shape(inspect.type_info(type_), unknown)


def _shape(info: inspect.Type, unknown: str | None = None, within: tuple[object, ...] = ()) -> str:
    match info:
        case inspect.Metadata(type=inner):
            return _shape(inner, unknown, within)
        case (
            inspect.StructType(cls=cls)
            | inspect.DataclassType(cls=cls)
            | inspect.TypedDictType(cls=cls)
        ):
            return cls.__name__ if cls in within else _object(info, unknown, (*within, cls))
        case inspect.UnionType(types=types):
            return _union([_shape(part, None, within) for part in types])
        case inspect.LiteralType(values=values):
            return " | ".join(_literal(value) for value in values)
        case inspect.EnumType(cls=cls):
            return " | ".join(_literal(member.value) for member in cls)
        case inspect.DictType(key_type=key, value_type=value):
            return f"{{{_shape(key, None, within)}: {_shape(value, None, within)}, …}}"
        case inspect.TupleType(item_types=items):
            return f"[{', '.join(_shape(item, None, within) for item in items)}]"
        case inspect.CollectionType(item_type=item):
            return f"[{_shape(item, None, within)}, …]"
    return _plain(info)


def _plain(info: inspect.Type) -> str:
    match info:
        case inspect.StrType(min_length=least, max_length=most, pattern=pattern):
            return (
                "text"
                + _bounds(least, most, " characters")
                + (f" (matches {pattern})" if pattern else "")
            )
        case inspect.IntType() | inspect.FloatType():
            word = "integer" if isinstance(info, inspect.IntType) else "number"
            strict = [
                f" ({word} {bound:,})"
                for word, bound in (("over", info.gt), ("under", info.lt))
                if bound is not None
            ]
            return word + _bounds(info.ge, info.le) + "".join(strict)
    return _WORDS.get(type(info), type(info).__name__.removesuffix("Type").lower())


def _bounds(least: float | None, most: float | None, unit: str = "") -> str:
    if least is None and most is None:
        return ""
    if most is None:
        return f" (from {least:,}{unit})"
    return f" (up to {most:,}{unit})" if least is None else f" ({least:,} to {most:,}{unit})"


def _union(parts: list[str]) -> str:
    numbers = {part.replace("number", "integer", 1) for part in parts if part.startswith("number")}
    kept = [part for part in parts if part not in numbers]
    return " | ".join(sorted(kept, key="null".__eq__))


def _object(info: Any, unknown: str | None, within: tuple[object, ...]) -> str:
    members = [
        _literal(field.encode_name)
        + ("?: " if _may_be_absent(info, field) else ": ")
        + _shape(field.type, None, within)
        for field in info.fields
        if unknown is None or field.name != unknown
    ]
    if isinstance(info, inspect.StructType) and info.tag_field is not None:
        members.insert(0, f"{_literal(info.tag_field)}: {_literal(info.tag)}")
    if unknown is not None:
        members.append("…")
    row = ", ".join(members)
    if len(row) <= _ROW_CHARS_MAX and "\n" not in row:
        return f"{{{row}}}"
    return "{\n" + ",\n".join("  " + member.replace("\n", "\n  ") for member in members) + "\n}"


def _may_be_absent(info: Any, field: Any) -> bool:
    if field.required:
        return False
    unset = field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT
    return unset or (
        isinstance(info, inspect.StructType) and info.cls.__struct_config__.omit_defaults
    )


def _literal(value: object) -> str:
    return msgspec.json.encode(value).decode()
