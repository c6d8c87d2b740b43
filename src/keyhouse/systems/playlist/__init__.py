"""Playlist: the shared state of a CyTube channel's playlist service, in six NATS KV buckets that
other programs also read.

Each bucket is a schema with one space, the bucket itself; `schema` declares them. The catalog's
SQLite tables are not declared here, because they are not key-value rows.
"""

from keyhouse.layout import JetstreamLayout, Layouts
from keyhouse.service.system import System

__all__ = ["SYSTEM"]

SYSTEM = System(
    "playlist",
    title="Playlist and catalog service",
    doc=__doc__,
    schemas="keyhouse.systems.playlist.schema:SCHEMAS",
    error_format="nested",
    layouts=Layouts(jetstream=JetstreamLayout(bucket_per_space=True)),
)
