"""A table of settings as a Struct: what a name means, what it may hold, and what is said of one that is not known.

Each setting is a field, `name: Annotated[type, setting("What it does.")] = default`. The same for the program's own settings
and for a system's: what is refused, how, and the table in the documentation follow from the Struct.
"""

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

import msgspec

from keyhouse.errors import UsageError

Kind = TypeVar("Kind", bound=msgspec.Struct)


def setting(doc: str, *, secret: bool = False) -> msgspec.Meta:
    """What a setting does, in a sentence. What is `secret` is never shown."""
    return msgspec.Meta(description=doc, extra={"secret": secret})


def read_settings(kind: type[Kind], given: Mapping[str, Any], *, table: str = "") -> Kind:
    """The Struct that the given settings make. UsageError for a name that it has not, with the nearest it has, and for a
    value that does not fit; `table` says in which table it stands. Text, as the environment has it, is read as the
    field's type: numbers and booleans as written, lists with commas between, anything else as JSON.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in given:
        if name not in fields:
            raise unknown_setting(_named(table, name), [_named(table, known) for known in fields])
    values = {name: _read(fields[name].type, value) for name, value in given.items()}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        place = str(error).rpartition("`$.")[2].rstrip("`") if "`$." in str(error) else ""
        reason = str(error).partition(" - at ")[0]
        field = fields.get(place.partition("[")[0])
        words = (
            []
            if field is None
            else [each for each in _alternatives(field.type) if isinstance(each, str)]
        )
        known = {"known": words} if words else {}
        raise UsageError(
            "A setting can't be that.", setting=_named(table, place), reason=reason, **known
        ) from None


def unknown_setting(name: str, known: list[str]) -> UsageError:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    fields = {"nearest": near[0]} if near else {"known": sorted(known)}
    return UsageError(
        "There is no such setting: correct it, or take it out.", setting=name, **fields
    )


def _named(table: str, name: str) -> str:
    return f"{table}.{name}" if table and name else table or name


def _read(kind: Any, value: Any) -> Any:
    """Text from the environment as what a list, a table or a Struct is made from. All else is converted by msgspec."""
    if not isinstance(value, str):
        return value
    origins = {get_origin(each) or each for each in _alternatives(kind)}
    if origins & {str}:
        return value
    if value[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    if origins & {list, tuple, frozenset, set}:
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _alternatives(kind: Any) -> list[Any]:
    """The types that a field may have: those of a union, without what is only said about them."""
    if hasattr(kind, "__metadata__"):
        return _alternatives(kind.__origin__)
    if get_origin(kind) is None or get_origin(kind) in (list, tuple, dict, set, frozenset):
        return [kind]
    return [each for argument in get_args(kind) for each in _alternatives(argument)]
