"""Whole keys, as the document's `buildKVKey` and `parseKVKey` make and read them: for operators, imports and exports.

A store never needs these: it builds and reads keys through its records.
"""

from typing import Final, TypedDict, cast

from keyhouse.errors import UsageError
from keyhouse.keys import Template
from keyhouse.systems.streamkit.schema import CONFIGS, SCENE_ACTIVITY

__all__ = [
    "CATEGORIES",
    "KVKey",
    "build_kv_key",
    "parse_kv_key",
]


class KVKey(TypedDict):
    """What a key says, under the document's names."""

    customerId: str
    configType: str
    configId: str


CATEGORIES: Final[dict[str, Template]] = {
    **{category: record.template for category, record in CONFIGS.items()},
    SCENE_ACTIVITY.name: SCENE_ACTIVITY.template,
}
"""The closed list of categories, each with the template of its keys."""


def build_kv_key(customer_id: str, config_type: str, config_id: str) -> str:
    """The key of a config or a scene; KeyFieldError names what can't stand in it."""
    template = CATEGORIES.get(config_type)
    if template is None:
        raise UsageError("No such category.", category=config_type, known=list(CATEGORIES))
    return template.join((customer_id, config_id))


def parse_kv_key(key: str) -> KVKey | None:
    """What the key says, or `None` for a key that `build_kv_key` does not make."""
    for category, template in CATEGORIES.items():
        if (found := template.split(key)) is not None:
            customer, identifier = cast(tuple[str, str], found)
            return KVKey(customerId=customer, configType=category, configId=identifier)
    return None
