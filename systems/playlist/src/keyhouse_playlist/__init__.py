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
    schemas="keyhouse_playlist.schema:SCHEMAS",
    service="keyhouse_playlist.service:SERVICE",
    remote="keyhouse_playlist.remote",
    commands="keyhouse_playlist.commands:app",
    limits="keyhouse_playlist.limits",
    layouts=Layouts(jetstream=JetstreamLayout(bucket_per_space=True), default_engine="nats:"),
)
