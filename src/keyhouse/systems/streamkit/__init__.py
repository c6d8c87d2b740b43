"""Streamkit: configs of an OBS control panel (text cyclers, swaps, layouts, notes) and counts of
scene switches.

A space is a customer. `schema` declares the keyspace, and `keys` has the document's two functions
on whole keys. Programs use the client: `from keyhouse.systems.streamkit.client import Streamkit`.
"""

from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "streamkit",
    title="Streamer configuration API",
    doc=__doc__,
    schemas="keyhouse.systems.streamkit.schema:SCHEMAS",
    service="keyhouse.systems.streamkit.service:SERVICE",
    remote="keyhouse.systems.streamkit.remote",
    commands="keyhouse.systems.streamkit.commands:app",
    limits="keyhouse.systems.streamkit.limits",
)
