"""The values of a keyspace as JSON Schema (2020-12), for editors, validators and other languages.

Any value that a record of the keyspace may have is valid by the document as a whole; `x-records` says which type is stored
at which key, and what is derived from it.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from keyhouse.schema import Record
from keyhouse.schema.description import kind_of, prose
from keyhouse.service.system import System

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def json_schema(system: System) -> dict[str, Any]:
    found = [(schema.name, record) for schema in system.schemas for record in schema.records]
    values, components = msgspec.json.schema_components(
        [record.type for _, record in found], ref_template="#/$defs/{name}"
    )
    records = [
        _record(schema, record, value)
        for (schema, record), value in zip(found, values, strict=True)
    ]
    return {
        "$schema": _DIALECT,
        "title": system.title,
        "description": prose(system.doc).partition("\n")[0],
        "anyOf": _distinct(values),
        "$defs": components,
        "x-records": records,
    }


def _record(schema: str, record: Record[Any], value: dict[str, Any]) -> dict[str, Any]:
    return {
        "schema": schema,
        "record": record.name,
        "kind": kind_of(record),
        "key": record.template.text,
        "value": value,
        "private": list(record.private),
        "derived": [{"kind": kind_of(each), "key": each.template.text} for each in record.derived],
    }


def _distinct(values: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    for value in values:
        if value not in kept:
            kept.append(value)
    return kept
