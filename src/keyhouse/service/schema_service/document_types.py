"""The types of requests and responses in the OpenAPI document, made from the records' own types.

A value that is sent has no private members. One that is received may leave out what the address or
the store gives. SchemaHandlers read and check values themselves: these types only describe them.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Literal, Union

import msgspec
from msgspec import NODEFAULT, UNSET, UnsetType

from keyhouse.service.schema_service.answers import UnreadableItem
from keyhouse.service.schema_service.catalog import ServedDerived, ServedRecord

__all__ = ["RecordTypes", "choice", "filters", "parameters", "texts_of"]

_RANGES = ("", ".from", ".to", ".prefix")


class RecordTypes:
    """The document's types for one record."""

    def __init__(self, served: ServedRecord) -> None:
        self._served = served
        record = served.record
        given = {name for name, _ in served.set_by_store()}
        given |= {
            source for source in record.attributes if record.member(source) in _members(served)
        }
        self.name = name = _class_name(served.name)
        shown = self._struct(f"{name}Value", without=frozenset(record.private))
        is_closed = not record.keeps_unknown and record.unknown is None
        self.received = self._struct(
            f"New{name}", optional=given | set(record.private), closed=is_closed
        )
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
                ("revision", int | UnsetType, UNSET),
                ("cursor", str | UnsetType, UNSET),
                ("unreadable", list[UnreadableItem] | UnsetType, UNSET),
            ],
        )

    def _struct(
        self,
        name: str,
        *,
        without: frozenset[str] = frozenset(),
        optional: set[str] | frozenset[str] = frozenset(),
        closed: bool = False,
    ) -> Any:
        """Return the record's type without some attributes, and with others optional; `closed`, it
        has no additional properties."""
        record = self._served.record
        if not record.is_struct or record.type.__struct_config__.array_like:
            return record.type
        if record.unknown is not None:
            without = without | {record.unknown}
        if not without and not optional and not closed:
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
            forbid_unknown_fields=closed,
        )


def parameters(
    name: str,
    texts: list[str],
    others: list[tuple[str, Any, Any]] | None = None,
    unknown: Callable[[str], Exception] | None = None,
) -> type[msgspec.Struct]:
    """Return the Struct of a query: parameters that are text, and others with type and default.
    `unknown` returns the error for any other parameter."""
    fields = [(f"p{at}", str | None, None) for at in range(len(texts))]
    renamed = {f"p{at}": text for at, text in enumerate(texts)}
    own = [each[:2] if each[2] is NODEFAULT else each for each in others or []]
    namespace = {} if unknown is None else {"unknown_parameter": staticmethod(unknown)}
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


def _members(served: ServedRecord) -> set[str]:
    return set(served.members.values())


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


def _class_name(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.replace("-", "_").split("_"))
