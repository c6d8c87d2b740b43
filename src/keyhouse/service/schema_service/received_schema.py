"""The JSON Schemas of values that requests send, for the OpenAPI document.

They are msgspec's own, and beyond those say what the service checks or takes:

- A member that no type has is rejected, unless the record keeps unknown members.
- The keys of a map whose keys are not text, the text of bytes.
- A set may have duplicates, and the tag of a Struct that is not a choice may be left out.

Each record has its own components, named after it: the same type may be closed in one record and
open in another. A merge patch has all members optional, and null for those that may be removed.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec
from msgspec import inspect

from keyhouse.http.openapi import COMPONENT_REFERENCE
from keyhouse.http.router import BodySchema
from keyhouse.schema.json_schema import json_schemas

__all__ = ["patch_schema", "received_schema"]

_OBJECTS: Final = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_MAPS: Final = (inspect.DictType, inspect.FrozenDictType)
_BYTES: Final = (inspect.BytesType, inspect.ByteArrayType, inspect.MemoryViewType)
_BASE64: Final = "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_INTEGER: Final = "^(?:0|-?[1-9][0-9]*)$"
_NULL: Final = {"type": "null"}

Json = dict[str, Any]


def received_schema(kind: Any, prefix: str, *, closed: bool) -> BodySchema:
    """Return the schema of a value of this type. The names of components, but that of the type
    itself, start with `prefix`. `closed`, no object has additional properties."""
    return _Received(kind, prefix, closed=closed).body


def patch_schema(kind: Any, prefix: str, *, closed: bool) -> BodySchema:
    """Return the schema of a merge patch (RFC 7396) of a value of this type."""
    received = _Received(kind, prefix, closed=closed)
    return _Patches(received, prefix).body(inspect.type_info(kind))


class _Received:
    """msgspec's schemas of a type, corrected in place along the type."""

    def __init__(self, kind: Any, prefix: str, *, closed: bool) -> None:
        start = f"{COMPONENT_REFERENCE}{prefix}."
        [[schema], found] = json_schemas([kind], ref_template=start + "{name}")
        self._closed = closed
        self.components: Json = {f"{prefix}.{name}": part for name, part in found.items()}
        self._corrected: set[str] = set()
        self._correct(inspect.type_info(kind), schema)
        if (name := component(schema)) is not None and not self._is_referred_to(schema["$ref"]):
            own = name.removeprefix(f"{prefix}.")
            self.components[own] = self.components.pop(name)
            schema = {"$ref": COMPONENT_REFERENCE + own}
        self.body = BodySchema(schema, self.components)

    def _is_referred_to(self, reference: str) -> bool:
        return reference.encode() in msgspec.json.encode(self.components)

    def _correct(self, info: inspect.Type, schema: Json) -> None:
        info = plain_type(info)
        if (name := component(schema)) is not None:
            if name in self._corrected:
                return
            self._corrected.add(name)
            schema = self.components[name]
        for part, inside in parts(info, schema):
            self._correct(part, inside)
        if isinstance(info, _BYTES):
            schema.setdefault("pattern", _BASE64)
        elif isinstance(info, inspect.CollectionType):
            schema.pop("uniqueItems", None)
        elif isinstance(info, _MAPS):
            schema.update(_names(info.key_type))
        elif isinstance(info, inspect.UnionType):
            _require_tags(schema)
        elif is_object(info):
            if (tag := getattr(info, "tag_field", None)) is not None:
                schema["required"].remove(tag)
            if self._closed:
                schema["additionalProperties"] = False


class _Patches:
    """The schemas of merge patches, made from those of whole values."""

    def __init__(self, received: _Received, prefix: str) -> None:
        self._prefix = prefix
        self._received = received
        self._components: Json = {}

    def body(self, info: inspect.Type) -> BodySchema:
        schema = self._patch(info, self._received.body.schema)
        return BodySchema(schema, {**self._received.components, **self._components})

    def _patch(self, info: inspect.Type, schema: Json) -> Json:
        info = plain_type(info)
        if is_object(info):
            return self._object(info, schema)
        if isinstance(info, _MAPS):
            values: Json = {"type": "object"}
            for part, value in parts(info, schema):
                values["additionalProperties"] = _nullable(self._patch(part, value))
            return values
        if isinstance(info, inspect.UnionType) and any(_is_patched(each) for each in info.types):
            options = parts(info, schema)
            others = [each for each in options if not isinstance(each[0], inspect.NoneType)]
            return _nullable(self._patch(*others[0])) if len(others) == 1 else {}
        return schema

    def _object(self, info: Any, schema: Json) -> Json:
        whole = component(schema)
        assert whole is not None, "msgspec makes a component of each object"
        start = f"{self._prefix}."
        name = f"{self._prefix}Patch.{whole[len(start) :]}" if whole.startswith(start) else whole
        if name not in self._components:
            self._components[name] = patch = {**self._received.components[whole]}
            required = patch.pop("required")
            properties = dict(patch["properties"])
            patch["properties"] = properties
            for field in info.fields:
                own = field.encode_name
                found = self._patch(field.type, properties[own])
                found = {key: part for key, part in found.items() if key != "default"}
                properties[own] = found if own in required else _nullable(found)
            if (tag := getattr(info, "tag_field", None)) is not None:
                properties[tag] = _nullable(properties[tag])
            if patch.get("additionalProperties") is False:
                patch["additionalProperties"] = _NULL  # removes nothing
        return {"$ref": COMPONENT_REFERENCE + name}


def plain_type(info: inspect.Type) -> inspect.Type:
    """Return a type without its metadata."""
    while isinstance(info, inspect.Metadata):
        info = info.type
    return info


def is_object(info: inspect.Type) -> bool:
    """Return whether a type is an object of named members in JSON."""
    return isinstance(info, _OBJECTS) and not getattr(info, "array_like", False)


def component(schema: Json) -> str | None:
    """Return the name of the component that a schema refers to."""
    reference = schema.get("$ref")
    return None if reference is None else reference.removeprefix(COMPONENT_REFERENCE)


def parts(info: inspect.Type, schema: Json) -> Iterator[tuple[inspect.Type, Json]]:
    """Yield the types inside of a type, each with its place in msgspec's schema of it."""
    if isinstance(info, inspect.CollectionType):
        yield from _given(info.item_type, schema, "items")
    elif isinstance(info, _MAPS):
        yield from _given(info.value_type, schema, "additionalProperties")
    elif isinstance(info, inspect.TupleType):
        yield from zip(info.item_types, schema.get("prefixItems", ()), strict=True)
    elif isinstance(info, inspect.UnionType):
        yield from zip(_ordered(info), _options(schema), strict=True)
    elif is_object(info):
        for field in info.fields:  # type: ignore[attr-defined]  # it is one of _OBJECTS
            yield field.type, schema["properties"][field.encode_name]
    elif isinstance(info, (*_OBJECTS, inspect.NamedTupleType)):
        places = schema["prefixItems"][-len(info.fields) :] if info.fields else ()
        yield from zip([field.type for field in info.fields], places, strict=True)


def _given(info: inspect.Type, schema: Json, name: str) -> Iterator[tuple[inspect.Type, Json]]:
    if name in schema:
        yield info, schema[name]


def _ordered(info: inspect.UnionType) -> list[inspect.Type]:
    """Return the options of a choice in msgspec's order: others, objects that are Structs, null."""
    kinds: tuple[list[inspect.Type], ...] = ([], [], [])
    for each in info.types:
        inner = plain_type(each)
        is_struct = isinstance(inner, inspect.StructType) and is_object(inner)
        kinds[1 if is_struct else 2 if isinstance(inner, inspect.NoneType) else 0].append(inner)
    return [each for kind in kinds for each in kind]


def _options(schema: Json) -> Iterator[Json]:
    for option in schema["anyOf"]:
        if "discriminator" in option:
            yield from option["anyOf"]
        else:
            yield option


def _require_tags(schema: Json) -> None:
    """Require the tag of each Struct of a choice, which says which one it is."""
    for choice in (schema, *schema["anyOf"]):
        if "discriminator" in choice:
            tag = choice["discriminator"]["propertyName"]
            for option in choice["anyOf"]:
                option["required"] = [tag]


def _is_patched(info: inspect.Type) -> bool:
    """Return whether a merge patch changes parts of a value of this type."""
    info = plain_type(info)
    return is_object(info) or isinstance(info, (*_MAPS, inspect.AnyType))


def _nullable(schema: Json) -> Json:
    if not schema or _NULL in schema.get("anyOf", ()):
        return schema
    return {"anyOf": [schema, _NULL]}


def _names(key: inspect.Type) -> Mapping[str, Any]:
    """Return what a schema says of the keys of a map that are not text."""
    key = plain_type(key)
    if isinstance(key, inspect.IntType):
        return {"propertyNames": {"pattern": _INTEGER}}
    if isinstance(key, inspect.EnumType):
        return {"propertyNames": {"enum": [str(each.value) for each in key.cls]}}
    if isinstance(key, inspect.LiteralType):
        return {"propertyNames": {"enum": [str(each) for each in key.values]}}
    return {}
