"""Streamkit: each customer of an OBS control panel keeps text cyclers, swaps, layouts and notes, and counts scene switches.

A space is a customer. The keyspace is declared in `schema`, and `keys` has the document's two functions on whole keys. What
an operator does is in `operator` and `migration`; `service` is its face over HTTP, and `client` asks that.
"""

from keyhouse.systems.streamkit.keys import CATEGORIES, KVKey, build_kv_key, parse_kv_key
from keyhouse.systems.streamkit.migration import Moved, customer_ids, migrate_keys
from keyhouse.systems.streamkit.operator import export_items, import_items, read_items
from keyhouse.systems.streamkit.schema import (
    CONFIGS,
    CONFIGS_V2,
    CUSTOMER,
    LAYOUT,
    NOTE,
    SCENE_ACTIVITY,
    SCENE_ACTIVITY_V2,
    SCHEMAS,
    SWAP,
    TEXT_CYCLER,
    Layout,
    LayoutSource,
    Note,
    SceneActivity,
    Swap,
    TextCycler,
)
from keyhouse.systems.streamkit.transfer import count_replaced

__all__ = [
    "CATEGORIES",
    "CONFIGS",
    "CONFIGS_V2",
    "CUSTOMER",
    "LAYOUT",
    "NOTE",
    "SCENE_ACTIVITY",
    "SCENE_ACTIVITY_V2",
    "SCHEMAS",
    "SWAP",
    "TEXT_CYCLER",
    "KVKey",
    "Layout",
    "LayoutSource",
    "Moved",
    "Note",
    "SceneActivity",
    "Swap",
    "TextCycler",
    "build_kv_key",
    "count_replaced",
    "customer_ids",
    "export_items",
    "import_items",
    "migrate_keys",
    "parse_kv_key",
    "read_items",
]
