"""The engines: each keeps the contract of `keyhouse.engine`, and knows rows but no schema.

`keyhouse.engines.registry.open_engine` opens one by its URL; a driver is imported only when its engine is asked for.
"""
