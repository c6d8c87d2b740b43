"""Adapters: a store behind the interface of another library, each a module with its own extra.

`py_key_value`, `aiocache_backend`, `starlette_sessions` and `langgraph_checkpoints`. An adapter
declares its keyspace and takes an open `Store` of it; it knows no engine.
"""
