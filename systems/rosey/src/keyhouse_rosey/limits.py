"""Limits of plugin storage, each with its unit and origin."""

from typing import Final

PLUGIN_VALUE_BYTES_MAX: Final = 65_536
"""A plugin's value as compact JSON: the document's limit."""

PLUGIN_BATCH_KEYS_MAX: Final = 1_000
"""Keys of one `mget`, operations of one `batch`: about as many as fit in one NATS message."""

BODY_BYTES_PER_REQUEST: Final = 4_096
"""A message costs its plugin one request more for each of these: large ones take time and disk."""

PLUGIN_LONG_READS_MAX: Final = 8
"""Requests of one plugin that read many rows at once (`list`, `scan`, `mget`, `count`); further
ones wait. Each holds a reply of up to `reply_bytes_max`."""
