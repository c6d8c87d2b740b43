"""Playlist: a catalog, playlists and the queue of a CyTube channel, over HTTP and NATS. The shared
state is in six NATS KV buckets that other programs also read.

Each bucket is a schema with one space, the bucket itself; `schema` declares them. The catalog is a
SQLite file with the document's tables: see `catalog`.
"""

from keyhouse.layout import JetstreamLayout, Layouts
from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "playlist",
    title="Playlist and catalog service",
    doc=__doc__,
    schemas="keyhouse.systems.playlist.schema:SCHEMAS",
    service="keyhouse.systems.playlist.service:SERVICE",
    remote="keyhouse.systems.playlist.remote",
    commands="keyhouse.systems.playlist.commands:app",
    limits="keyhouse.systems.playlist.limits",
    error_format="nested",
    layouts=Layouts(jetstream=JetstreamLayout(bucket_per_space=True), default_engine="nats:"),
)
