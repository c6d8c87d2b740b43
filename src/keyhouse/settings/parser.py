"""Convert a table of settings to a Struct, with an error that names each unknown or invalid
setting.

Each setting is a field, `name: Annotated[type, setting("Description.")] = default`, for the
program's own settings and for a system's. Validation and the table in the documentation follow from
the Struct.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar, get_args, get_origin

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.advice.rejected_members import rejected_member
from keyhouse.errors import UsageError

Kind = TypeVar("Kind", bound=msgspec.Struct)

_VARIABLE: Final = "KEYHOUSE_"
_FILE_URL: Final = re.compile("((?:sqlite|rocksdb):)(?:///)?(?=[^/:]|/)")
_NO_PATH: Final = re.compile(r'[a-z]+:|\s*\{\s*"')
"""A URL, and JSON in place of a file."""
TABLE_OWN: Final = {"http": "listen"}
"""The setting of a table that is read before the others; in every other table, `engine`."""


class FileText(str):
    """A text of a settings file, with the folder of that file."""

    __slots__ = ("folder",)

    folder: Path

    @classmethod
    def within(cls, value: Any, folder: Path) -> Any:
        """Return a value of a settings file with the folder in each of its texts."""
        if isinstance(value, str):
            text = cls(value)
            text.folder = folder
            return text
        if isinstance(value, list):
            return [cls.within(each, folder) for each in value]
        if isinstance(value, dict):
            return {name: cls.within(each, folder) for name, each in value.items()}
        return value


def setting(doc: str, *, secret: bool = False, path: bool = False) -> msgspec.Meta:
    """Describe a setting in a sentence. A `secret` value is never logged. A `path`, also that of an
    engine's URL, is relative to the settings file that has it."""
    return msgspec.Meta(description=doc, extra={"secret": secret, "path": path})


def plain_value(value: Any, *, is_path: bool = False) -> Any:
    """Return a value of a settings file without its folder. A relative path is joined to it."""
    if isinstance(value, FileText):
        return _joined(value) if is_path else str(value)
    if isinstance(value, list):
        return [plain_value(each, is_path=is_path) for each in value]
    if isinstance(value, dict):
        return {name: plain_value(each, is_path=is_path) for name, each in value.items()}
    return value


def _joined(text: FileText) -> str:
    scheme = _FILE_URL.match(text)
    if scheme is None and _NO_PATH.match(text):
        return str(text)
    start = 0 if scheme is None else scheme.end()
    return (scheme[1] if scheme else "") + str(text.folder / str(text)[start:])


def read_settings(kind: type[Kind], given: Mapping[str, Any], *, table: str = "") -> Kind:
    """Return the Struct with the given settings.

    Raises UsageError for an unknown name (with the nearest known one) and for an invalid value;
    `table` is the name of the table, for the error. Text, from the environment, is read as the
    field's type: numbers and booleans as written, lists separated by commas, anything else as JSON.
    """
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for name in given:
        if name not in fields:
            own = [TABLE_OWN.get(table, "engine")] if table else []
            raise unknown_setting(
                _qualified(table, name), [_qualified(table, known) for known in (*fields, *own)]
            )
    values = {
        name: _parse(fields[name].type, plain_value(value, is_path=_is_path(fields[name].type)))
        for name, value in given.items()
    }
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        rejected = rejected_member(kind, values)
        if rejected and "value" not in rejected:
            name, known = str(rejected["member"]), rejected["known"]
            inner = _qualified(table, name.rpartition(".")[0])
            raise unknown_setting(
                _qualified(table, name),
                [_qualified(inner, each) for each in known],  # type: ignore[attr-defined]  # a list
            ) from None
        path = str(error).rpartition("`$.")[2].rstrip("`") if "`$." in str(error) else ""
        reason = str(error).partition(" - at ")[0]
        rejected.pop("member", None)
        raise UsageError(
            "Invalid setting.", setting=_qualified(table, path), reason=reason, **rejected
        ) from None
    except UsageError as error:  # of a check of the Struct, which does not know its table
        if table:
            error.fields["table"] = table
        raise


def unknown_setting(name: str, known: list[str]) -> UsageError:
    """The nearest is by the name alone: that of its table would make all of them similar."""
    start = name.rfind(".") + 1 or (len(_VARIABLE) if name.startswith(_VARIABLE) else 0)
    ends = {each[start:].strip("[]"): each for each in known}
    near = nearest(name[start:], ends).get("nearest")
    fields = {"known": sorted(known)} if near is None else {"nearest": ends[near]}
    sentence = "Unknown setting: correct it, or remove it."
    if near is None and not start:
        sentence += " A setting of one system or schema is in the table with its name."
    return UsageError(sentence, setting=name, **fields)


def _is_path(kind: Any) -> bool:
    extras = [each.extra for each in getattr(kind, "__metadata__", ()) if hasattr(each, "extra")]
    return any(extra["path"] for extra in extras if extra and "path" in extra)


def _qualified(table: str, name: str) -> str:
    return f"{table}.{name}" if table and name else table or name


def _parse(kind: Any, value: Any) -> Any:
    """Parse text from the environment where a list, a table or a Struct is expected.

    msgspec converts the rest.
    """
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
    """Return the types that a field accepts: the members of a union, without annotations."""
    if hasattr(kind, "__metadata__"):
        return _alternatives(kind.__origin__)
    if get_origin(kind) is None or get_origin(kind) in (list, tuple, dict, set, frozenset):
        return [kind]
    return [each for argument in get_args(kind) for each in _alternatives(argument)]
