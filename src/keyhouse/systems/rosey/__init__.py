"""Rosey: plugins of a chat bot keep settings, counters and sessions, over NATS.

A space is a plugin; its keys are the plugin's own texts, its values any JSON. The keyspace is declared in `schema`;
it knows nothing of subjects, quotas or the size of a value, which are the service's. Who writes a plugin uses the client:
`from keyhouse.systems.rosey.client import PluginStorage`.
"""

from keyhouse.systems.rosey.schema import PLUGIN, SCHEMAS, VALUE

__all__ = ["PLUGIN", "SCHEMAS", "VALUE"]
