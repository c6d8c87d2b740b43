"""Rosey: plugins of a chat bot store settings, counters and sessions over NATS.

A space is a plugin. Its keys are any text the plugin chooses, its values any JSON. A plugin's
author uses the client: `from keyhouse_rosey.client import PluginStorage`.
"""

from keyhouse.layout import Layouts, SqlLayout
from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "rosey",
    title="Plugin storage over NATS",
    doc=__doc__,
    schemas="keyhouse_rosey.schema:SCHEMAS",
    service="keyhouse_rosey.service:SERVICE",
    remote="keyhouse_rosey.remote",
    commands="keyhouse_rosey.commands:app",
    limits="keyhouse_rosey.limits",
    layouts=Layouts(
        sql=SqlLayout(
            rows="plugin_kv_storage",
            space="plugin_name",
            expires="expires_at",
            created="created_at",
            updated="updated_at",
            timestamps=True,
            by_expiry="idx_kv_expires_at",
            by_key="idx_kv_plugin_prefix",
            large_values=None,
            changes="plugin_kv_changes",
            applied="plugin_kv_applied",
            pruned="plugin_kv_pruned",
            version="plugin_kv_version",
        ),
    ),
)
