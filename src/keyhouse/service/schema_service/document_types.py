"""The types of requests and responses in the OpenAPI document, made from the records' own types.

A value that is sent has no private members. One that is received may leave out what the address or
the store gives. Verbs read and check values themselves: these types only describe them.
"""

from collections.abc import Callable, Iterable, Set
from functools import cache
from typing import Any, Literal, Union

import msgspec
from msgspec import NODEFAULT, UNSET, UnsetType

from keyhouse.http.router import BodySchema
from keyhouse.operations.catalog import ServedDerived, ServedRecord
from keyhouse.operations.replies import UnreadableItem
from keyhouse.service.schema_service.received_schema import patch_schema, received_schema

__all__ = ["RecordTypes", "choice", "filters", "parameters", "texts_of"]

_RANGES = ("", ".from", ".to", ".prefix")


class RecordTypes:
    """The document's types for one record."""

    def __init__(self, served: ServedRecord) -> None:
        self._served = served
        record = served.record
        self.name = name = _class_name(served.name)
        shown = self._struct(f"{name}Value", without=frozenset(record.private))
        self.item = msgspec.defstruct(
            f"{name}ServedItem",
            [
                ("key", str),
                ("fields", dict[str, Any]),
                ("revision", int),
                ("expires_at", str | None),
                ("value", _or_unset(shown), UNSET),
            ],
        )
        self.page = msgspec.defstruct(
            f"{name}Page",
            [
                ("items", list[self.item]),  # type: ignore[name-defined]  # made above
                ("revision", int),
                ("cursor", str | UnsetType, UNSET),
                ("unreadable", list[UnreadableItem] | UnsetType, UNSET),
            ],
        )

    def found(self, item: Any) -> Any:
        """Return the type of several items, each of this type."""
        return msgspec.defstruct(
            f"{self.name}Found",
            [("items", list[item]), ("unreadable", list[UnreadableItem] | UnsetType, UNSET)],
        )

    def created(self) -> BodySchema:
        """Return the schema of a new value: the store sets some members, and positions."""
        given = {name for name, _ in self._served.set_by_store()}
        order = frozenset(filter(None, [self._served.order]))
        return self._received(f"New{self.name}", optional=given, without=order)

    def put(self) -> BodySchema:
        """Return the schema of a value whose address is that of the request. Private members may
        be left out too: they stay as they are."""
        record = self._served.record
        held = set(self._served.members.values())
        given = {name for name, _ in self._served.set_by_store()} | set(record.private)
        given |= {source for source in record.attributes if record.json.member(source) in held}
        return self._received(f"Put{self.name}", optional=given)

    def patch(self) -> BodySchema:
        """Return the schema of a merge patch of a value."""
        return self._described(patch_schema, self._struct(f"{self.name}Patch", new=True))

    def _received(
        self, name: str, *, optional: Set[str], without: frozenset[str] = frozenset()
    ) -> BodySchema:
        made = self._struct(name, without=without, optional=optional, new=True)
        return self._described(received_schema, made)

    def _described(self, describe: Callable[..., BodySchema], kind: Any) -> BodySchema:
        """Return a schema of a type whose objects have additional properties where the record keeps
        them: everywhere but in sealed members, or at the top."""
        record, name = self._served.record, self.name
        body = describe(kind, name, closed=not record.keeps_unknown)
        if not (record.keeps_unknown or record.unknown is not None):
            return body
        top = body.components[kind.__name__]
        top.pop("additionalProperties", None)
        for attribute in record.sealed if record.keeps_unknown else ():
            types = {each.name: each.type for each in msgspec.structs.fields(kind)}
            member = record.json.member(attribute)
            part = describe(types[attribute], f"{name}.{member}", closed=True)
            top["properties"][member] = part.schema
            body.components.update(part.components)
        return body

    def _struct(
        self,
        name: str,
        *,
        without: frozenset[str] = frozenset(),
        optional: Set[str] = frozenset(),
        new: bool = False,
    ) -> Any:
        """Return the record's type without some attributes, and with others optional; itself if
        none is different, unless it is to be a `new` one."""
        record = self._served.record
        if not record.json.is_struct or record.type.__struct_config__.array_like:
            return record.type
        if record.unknown is not None:
            without = without | {record.unknown}
        if not without and not optional and not new:
            return record.type
        fields = [each for each in msgspec.structs.fields(record.type) if each.name not in without]
        config = record.type.__struct_config__
        return msgspec.defstruct(
            name,
            [
                (
                    each.name,
                    _or_unset(each.type) if each.name in optional else each.type,
                    UNSET if each.name in optional else _default(each),
                )
                if each.name in optional or _default(each) is not NODEFAULT
                else (each.name, each.type)
                for each in sorted(fields, key=lambda each: each.name in optional)
            ],
            rename={each.name: each.encode_name for each in fields},
            tag=config.tag,
            tag_field=config.tag_field,
            kw_only=True,
        )


def parameters(
    name: str,
    texts: list[str],
    others: list[tuple[str, Any, Any]] | None = None,
    unknown: Callable[[str], Exception] | None = None,
    invalid: Callable[[str, str], Exception | None] | None = None,
) -> type[msgspec.Struct]:
    """Return the Struct of a query: parameters that are text, and others with type and default.
    `unknown` returns the error for any other parameter, `invalid` that of a value that is not one
    of a choice."""
    fields = [(f"p{at}", str | None, None) for at in range(len(texts))]
    renamed = {f"p{at}": text for at, text in enumerate(texts)}
    own = [each[:2] if each[2] is NODEFAULT else each for each in others or []]
    errors = {"unknown_parameter": unknown, "invalid_choice": invalid}
    namespace = {each: staticmethod(make) for each, make in errors.items() if make is not None}
    return msgspec.defstruct(
        name, [*own, *fields], rename=renamed, kw_only=True, namespace=namespace
    )


def filters(served: ServedRecord, rows: Iterable[ServedDerived[Any]]) -> list[str]:
    """Return the parameters by which a record can be filtered: its key fields, and those of these
    derived rows."""
    names = dict.fromkeys(served.fields)
    for row in rows:
        names |= dict.fromkeys(row.fields)
    return [f"{name}{kind}" for name in names for kind in _RANGES]


def texts_of(query: Any) -> dict[str, str]:
    """Return the parameters of a query that are text and were given, by the name in the request."""
    return {
        text: value
        for name, text in _text_parameters(type(query))  # type: ignore[arg-type]  # a class is hashable
        if (value := getattr(query, name)) is not None
    }


@cache
def _text_parameters(query: type[msgspec.Struct]) -> list[tuple[str, str]]:
    fields = msgspec.structs.fields(query)
    return [(each.name, each.encode_name) for each in fields if each.name != each.encode_name]


def choice(names: list[str]) -> Any:
    """Return a Literal of these names."""
    return Literal[tuple(names)]


def _or_unset(kind: Any) -> Any:
    return Union[kind, UnsetType]  # noqa: UP007  # `|` does not take every type


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


def _class_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.replace("-", "_").split("_"))
