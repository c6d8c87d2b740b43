"""Limits of plugin storage, each with its unit and origin."""

from typing import Final

PLUGIN_VALUE_BYTES_MAX: Final = 65_536
"""A plugin's value as compact JSON: the document's limit."""

PLUGIN_BATCH_KEYS_MAX: Final = 1_000
"""Keys of one `mget`, operations of one `batch`: about as many as fit in one NATS message."""

PLUGIN_WATCHES_MAX: Final = 64
"""Concurrent watches of one plugin, in one process."""

WATCHES_MAX: Final = 10_000
"""Concurrent watches of all plugins, in one process: a client allowed to act as any plugin must not exhaust the memory."""

WATCH_SUBJECT_CHARS_MAX: Final = 255
"""The subject that a watch publishes to."""

PLUGINS_PAGE_MAX: Final = 1_000
"""Plugins in one page of the operator's view."""

KEYS_PAGE_MAX: Final = 1_000
"""Keys in one page of the operator's view."""
