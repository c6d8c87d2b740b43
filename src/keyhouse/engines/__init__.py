"""The engines: each implements the contract of `keyhouse.engine` and knows rows but no schema.

`keyhouse.engines.registry.open_engine` opens one by URL and imports its driver only then.
"""
