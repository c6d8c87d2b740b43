"""Checks the types of attributes that feed keys, when a record is declared.

Each type works, or is rejected with the sentence that helps: a list without `each`, a number
without a width, a time without `:time`, and so on. A source that is a function, or an attribute of
type Any, is checked by the first write.
"""

from collections.abc import Collection, Iterator
from datetime import date, datetime, time
from typing import Any, NamedTuple

from msgspec import inspect

from keyhouse.advice.nearest import is_misspelled, nearest
from keyhouse.errors import DeclarationError
from keyhouse.keys.segment import Segment
from keyhouse.keys.template import Template
from keyhouse.schema.compiled_rows import Source
from keyhouse.schema.derived import BoundDerived, Derived, RowPlace
from keyhouse.schema.record_check import CheckedRecord

__all__ = [
    *("bind_row", "check_field_types", "check_given_fields", "check_members", "check_time_types"),
]

_COLLECTIONS = (
    inspect.ListType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.CollectionType,
    inspect.VarTupleType,
)
_OTHER_MEMBERS = (inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_NUMBERS = (inspect.IntType, inspect.FloatType, inspect.BoolType, inspect.DecimalType)
_TIMES = (inspect.DateTimeType, inspect.DateType, inspect.TimeType, inspect.TimeDeltaType)


class _Fed(NamedTuple):
    """A field of a key, and the attribute that feeds it."""

    template: Template
    name: str
    source: str
    is_each: bool


def check_members(record: CheckedRecord, info: inspect.Type) -> None:
    """Raise DeclarationError for a type whose members look like key fields, but are not seen."""
    if not isinstance(info, _OTHER_MEMBERS):
        return
    members = {field.name for field in info.fields}
    named = members & {name for template in record.templates for name in template.fields}
    if record.derived or named:
        raise DeclarationError(
            "Only the attributes of a msgspec Struct feed keys: write `class "
            f"{info.cls.__name__}(msgspec.Struct)` in place of the {_kind(info)}.",
            record=record.name,
            fields=sorted(named),
        )


def bind_row(row: Derived, place: RowPlace, info: inspect.Type) -> BoundDerived:
    """Bind a derived row to its record. The error of a field that the record does not have names
    `each`, if it has a list."""
    try:
        return row.bind(place)
    except DeclarationError as error:
        name, named = error.fields.get("field"), error.fields.keys()
        lists = [each.name for each in _struct_fields(info) if isinstance(each.type, _COLLECTIONS)]
        if name is None or name in place.key.fields or not lists or row.each:
            raise
        if {"attribute", "nearest"} & named:
            raise
        raise DeclarationError(
            f'{error.sentence} For one row per item of a list, write each={{"{name}":'
            f' "{lists[0]}"}}.',
            **error.fields,
        ) from None


def _struct_fields(info: inspect.Type) -> tuple[inspect.Field, ...]:
    return info.fields if isinstance(info, inspect.StructType) else ()


def check_field_types(record: CheckedRecord, info: inspect.Type) -> None:
    """Raise DeclarationError if an attribute has a type that its key field cannot hold."""
    if not isinstance(info, inspect.StructType):
        return
    for fed in _fed(record.template, record.fields, record.derived):
        type_ = _type_at(info, fed, record.name)
        if type_ is not None:
            _check(type_, fed, record.name)


def check_time_types(
    info: inspect.Type, record: str, written: Collection[str | None], expiry: str | None
) -> None:
    """Raise DeclarationError if an attribute cannot hold the time that the store writes there as
    text (`written`), or reads there (`expiry`)."""
    types = {
        field.name: [
            each for each in _options(field.type) if not isinstance(each, inspect.NoneType)
        ]
        for field in _struct_fields(info)
    }
    for name in filter(None, written):
        if _are_all(types.get(name), (*_NUMBERS, *_TIMES)):
            raise DeclarationError(
                "The store keeps this time as text: declare the attribute as `str`.",
                record=record,
                attribute=name,
            )
    if expiry is not None and _are_all(types.get(expiry), (*_NUMBERS, *_TIMES[1:])):
        raise DeclarationError(
            "A record expires at a time: declare the attribute as `datetime`, or as `str` for RFC"
            " 3339.",
            record=record,
            attribute=expiry,
        )


def _are_all(options: list[inspect.Type] | None, kinds: tuple[type, ...]) -> bool:
    return bool(options) and all(isinstance(each, kinds) for each in options or ())


def check_given_fields(
    info: inspect.Type, record: str, template: Template, named: Collection[str]
) -> None:
    """Raise DeclarationError for a key field that the value does not hold, if it is an attribute
    misspelled by one letter. `named` are the fields whose source the declaration has."""
    if others := sorted(set(named) - set(template.fields)):
        raise DeclarationError(
            "The record's key has no such fields.",
            record=record,
            fields=others,
            **nearest(others[0], template.fields),
            key=template.text,
        )
    if not isinstance(info, inspect.StructType):
        return
    types = {field.name: field.type for field in info.fields}
    for name in template.fields:
        for attribute in types.keys() - set(template.fields):
            if name in types or name in named or not is_misspelled(name, attribute):
                continue
            fed = _Fed(template, name, attribute, False)
            segment = template.segment(name).innermost
            if all(_advice(each, segment, fed) is None for each in _options(types[attribute])):
                raise DeclarationError(
                    "The key has a field that the value does not hold, with nearly the name of an"
                    f' attribute: correct it, or write fields={{"{name}": None}} if it is given'
                    " with each call.",
                    record=record,
                    field=name,
                    nearest=attribute,
                    key=template.text,
                )


def _fed(
    template: Template, fields: dict[str, Source], derived: tuple[Derived, ...]
) -> Iterator[_Fed]:
    for name in template.fields:
        if isinstance(source := fields.get(name, name), str):
            yield _Fed(template, name, source, False)
    for row in derived:
        for name in row.template.fields:
            source = row.each.get(name, row.fields.get(name, name))
            of_key = name in template.fields and name not in row.fields and name not in row.each
            if isinstance(source, str) and not of_key:
                yield _Fed(row.template, name, source, name in row.each)


def _type_at(info: inspect.StructType, fed: _Fed, record: str) -> inspect.Type | None:
    """Return the type of an attribute, or of a nested one; None if it is not known here."""
    member: inspect.Type = info
    for at, name in enumerate(fed.source.split(".")):
        structs = [each for each in _options(member) if isinstance(each, inspect.StructType)]
        if len(structs) != 1:
            return None
        types = {field.name: field.type for field in structs[0].fields}
        if name not in types:
            if not at:
                return None  # given with each call, or reported with the derived row
            raise DeclarationError(
                "The record's type has no such attribute.",
                record=record,
                attribute=fed.source,
                **nearest(name, sorted(types)),
            )
        member = types[name]
    return member


def _check(info: inspect.Type, fed: _Fed, record: str) -> None:
    options = _options(info)
    if fed.is_each:
        options = [item for option in options for item in _items(option, fed, record)]
    for option in options:
        if (advice := _advice(option, fed.template.segment(fed.name).innermost, fed)) is not None:
            raise DeclarationError(
                f"The key cannot hold this attribute: {advice}.",
                record=record,
                attribute=fed.source,
                template=fed.template.text,
            )


def _items(option: inspect.Type, fed: _Fed, record: str) -> list[inspect.Type]:
    if isinstance(option, _COLLECTIONS):
        return _options(option.item_type)
    if isinstance(option, inspect.DictType):
        return _options(option.key_type)
    if isinstance(option, inspect.TupleType):
        return [each for item in option.item_types for each in _options(item)]
    if isinstance(option, inspect.AnyType):
        return []
    raise DeclarationError(
        "`each` takes the values of a list or set in turn, and this attribute is neither.",
        record=record,
        attribute=fed.source,
        template=fed.template.text,
    )


def _advice(info: inspect.Type, segment: Segment, fed: _Fed) -> str | None:
    """Return what to write instead, or None if the key field takes values of this type."""
    name = fed.name
    if not segment.takes:
        return None  # a segment type of the program's own
    if isinstance(info, (inspect.AnyType, inspect.NoneType, inspect.CustomType)):
        return None
    if isinstance(info, (*_COLLECTIONS, inspect.TupleType, inspect.DictType)):
        return f'it is a collection; write each={{"{name}": "{fed.source}"}} for a row per value'
    if isinstance(info, inspect.EnumType):
        values = [member.value for member in info.cls]
        if issubclass(info.cls, str) and not segment.holds:
            return None
        return (
            f"it is an Enum; make it a StrEnum, or Literal[{', '.join(map(repr, values))}]"
            if all(isinstance(value, str) for value in values)
            else "it is an Enum that is not text; make it a StrEnum"
        )
    if isinstance(info, inspect.LiteralType):
        kinds = {type(value) for value in info.values}
        return _plain_advice(kinds, segment, name)
    if isinstance(info, inspect.UUIDType):
        return "declare it as str, and store str(uuid4())"
    kind = _PYTHON.get(type(info))
    if kind is None:
        return "only text, numbers, days and times can be part of a key; use fields={…} to make one"
    return _plain_advice({kind}, segment, name)


_PYTHON: dict[type[inspect.Type], type] = {
    inspect.StrType: str,
    inspect.RawType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.DecimalType: float,
    inspect.BoolType: bool,
    inspect.DateType: date,
    inspect.DateTimeType: datetime,
    inspect.TimeType: time,
}


def _plain_advice(kinds: set[Any], segment: Segment, name: str) -> str | None:
    for kind in kinds:
        if kind is bool:
            return "a bool cannot be a key field; select records with when=…, or use Literal words"
        if kind is time:
            return "a time of day cannot be a key field; store minutes, or text"
        if kind not in segment.takes:
            return segment.holds.format(name=name) or _width(kind, name)
    return None


def _width(kind: Any, name: str) -> str:
    """Return the field that holds such a value in order, in place of text."""
    return {
        int: f"an int needs a width, so that keys are in order; write {{{name}:06d}}",
        float: f"a number needs its digits; write {{{name}:010.3f}}",
        date: f"write {{{name}:date}}",
        datetime: f"write {{{name}:time}}, or {{{name}:-time}} for newest first",
    }.get(kind, "it is not text")


def _options(info: inspect.Type) -> list[inspect.Type]:
    """Return the types of a union, without what annotations add."""
    if isinstance(info, inspect.Metadata):
        return _options(info.type)
    if isinstance(info, inspect.UnionType):
        return [option for each in info.types for option in _options(each)]
    return [info]


def _kind(info: inspect.Type) -> str:
    return type(info).__name__.removesuffix("Type")
