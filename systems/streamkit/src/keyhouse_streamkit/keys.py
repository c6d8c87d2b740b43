"""Whole keys, as the document's `buildKVKey` and `parseKVKey` build and parse them: for operators,
imports and exports.

A store does not need these: it builds and parses keys through its records.
"""

from typing import Any, Final, TypedDict, cast

from keyhouse.advice import nearest
from keyhouse.errors import UsageError
from keyhouse.keys import Template
from keyhouse.schema import Record
from keyhouse_streamkit.schema import RECORDS

__all__ = ["CATEGORIES", "KVKey", "build_kv_key", "find_record", "parse_kv_key"]


class KVKey(TypedDict):
    """The fields of a key, under the document's names."""

    customerId: str
    configType: str
    configId: str


CATEGORIES: Final[dict[str, Template]] = {
    category: record.legacy.template
    for category, record in RECORDS.items()
    if record.legacy is not None
}
"""The closed list of categories, each with the template of the document's keys (v1)."""


def build_kv_key(customer_id: str, config_type: str, config_id: str) -> str:
    """Return the key of a config or a scene; KeyFieldError for an invalid field."""
    template = CATEGORIES.get(config_type)
    if template is None:
        raise UsageError(
            "No such category.", category=config_type, **nearest(config_type, CATEGORIES)
        )
    return template.join((customer_id, config_id))


def parse_kv_key(key: str) -> KVKey | None:
    """Return the fields of a key, or None for a key that `build_kv_key` does not build."""
    for category, template in CATEGORIES.items():
        if (values := template.split(key)) is not None:
            customer, identifier = cast(tuple[str, str], values)
            return KVKey(customerId=customer, configType=category, configId=identifier)
    return None


def find_record(key: str) -> tuple[Record[Any], str, str] | None:
    """Return the record, customer and identifier of a key of either version; None for any other
    key."""
    for record in RECORDS.values():
        for template in record.templates:
            if (values := template.split(key)) is not None:
                return record, str(values[0]), str(values[1])
    return None
