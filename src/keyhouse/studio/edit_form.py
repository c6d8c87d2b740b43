"""The form of a record: one input for each member of its Struct, from its type."""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import inspect

from keyhouse.errors import DocumentError
from keyhouse.schema import Record

Kind = Literal["text", "optional", "json", "choice"]

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LONG: Final = 60


class FormField(msgspec.Struct):
    """An input. `text` and `optional` (an empty one is null) hold text, the others JSON."""

    name: str
    kind: Kind
    value: str
    hint: str = ""
    choices: list[str] = []
    is_long: bool = False
    is_fixed: bool = False
    error: str = ""


def form_fields(
    record: Record[Any],
    stored: bytes | None,
    key_fields: Mapping[str, object],
    hidden: tuple[str, ...],
) -> list[FormField]:
    """Return the inputs of a record, with its stored values; none if it is not a Struct.

    Members that the key holds are fixed.
    """
    if not record.json.is_struct:
        return []
    info = inspect.type_info(record.type)
    if not isinstance(info, inspect.StructType) or record.unknown is not None:
        return []
    try:
        members = {} if stored is None else _RAW.decode(stored)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []
    in_key = {str(record.fields.get(name, name)): value for name, value in key_fields.items()}
    if members.keys() - {field.encode_name for field in info.fields}:
        return []  # unknown members: only the text shows them
    fields: list[FormField] = []
    for field in info.fields:
        if field.encode_name in hidden:
            continue
        made = _field(field, members.get(field.encode_name))
        if field.name in in_key:
            made.is_fixed = True
            if stored is None and isinstance(in_key[field.name], str):
                made.value = str(in_key[field.name])
        fields.append(made)
    return fields


def _field(field: Any, stored: msgspec.Raw | None) -> FormField:
    kind, choices = _kind(field.type)
    raw = bytes(stored) if stored is not None else _default(field)
    if kind in ("text", "optional"):
        value = msgspec.json.decode(raw) if raw not in (b"", b"null") else ""
        if not isinstance(value, str):
            kind, value = "json", raw.decode()
        return FormField(field.encode_name, kind, value, is_long=len(value) > _LONG)
    text = raw.decode()
    is_long = kind == "json" and (text[:1] in ("{", "[") or len(text) > _LONG)
    return FormField(field.encode_name, kind, text, _hint(field.type), choices, is_long)


def _kind(info: Any) -> tuple[Kind, list[str]]:
    match info:
        case inspect.Metadata(type=inner):
            return _kind(inner)
        case inspect.StrType():
            return "text", []
        case inspect.BoolType():
            return "choice", ["true", "false"]
        case inspect.LiteralType(values=values):
            return "choice", [msgspec.json.encode(value).decode() for value in values]
        case inspect.EnumType(cls=cls):
            return "choice", [msgspec.json.encode(each.value).decode() for each in cls]
        case inspect.UnionType(types=types) if {type(each) for each in types} == {
            inspect.StrType,
            inspect.NoneType,
        }:
            return "optional", []
    return "json", []


def _default(field: Any) -> bytes:
    if field.default is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.json.encode(field.default_factory())
    return b""


def _hint(info: Any) -> str:
    match info:
        case inspect.IntType():
            return "A whole number."
        case inspect.FloatType():
            return "A number."
    return "JSON."


def keep_values(fields: list[FormField], members: list[str], values: list[str]) -> None:
    """Show submitted values in their inputs, except those of the key."""
    given = dict(zip(members, values, strict=False))
    for field in fields:
        if not field.is_fixed:
            field.value = _typed(given.get(field.name, field.value))


def document_of(
    fields: list[FormField], members: list[str], kinds: list[str], values: list[str]
) -> bytes:
    """Return the JSON of submitted inputs.

    Raises DocumentError, which names the member, if an input is not JSON.
    """
    if not len(members) == len(kinds) == len(values):
        raise DocumentError("The form has inputs without a name.")
    by_name = {field.name: field for field in fields}
    document: dict[str, msgspec.Raw] = {}
    for name, kind, typed in zip(members, kinds, values, strict=True):
        value = _typed(typed)
        if kind == "optional" and not value:
            document[name] = msgspec.Raw(b"null")
        elif kind in ("text", "optional"):
            document[name] = msgspec.Raw(msgspec.json.encode(value))
        elif value.strip():
            document[name] = _json(by_name.get(name), name, value)
    return msgspec.json.encode(document)


def _typed(value: str) -> str:
    """Return the value of an input with the line ends that were typed."""
    return value.replace("\r\n", "\n")


def _json(field: FormField | None, name: str, value: str) -> msgspec.Raw:
    try:
        msgspec.json.decode(value.encode())
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        if field is not None:
            field.error = "Not JSON."
        raise DocumentError(
            "A member is not JSON.", member=name, reason=f"{name}: {error}"
        ) from None
    return msgspec.Raw(value.strip().encode())
