"""Streamkit: configs of an OBS control panel (text cyclers, swaps, layouts, notes) and counts of
scene switches.

A space is a customer. `schema` declares the keyspace, and `keys` has the document's two functions
on whole keys. Programs use the client: `from keyhouse_streamkit.client import Streamkit`.
"""

from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "streamkit",
    title="Streamer configuration API",
    doc=__doc__,
    schemas="keyhouse_streamkit.schema:SCHEMAS",
    service="keyhouse_streamkit.service:SERVICE",
    remote="keyhouse_streamkit.remote",
    commands="keyhouse_streamkit.commands:app",
    limits="keyhouse_streamkit.limits",
)
