"""Deletes whole buckets, for callers that created temporary ones. Not part of the contract."""

from collections.abc import Iterable

from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.settings import parse


async def remove_buckets(url: str, spaces: Iterable[str]) -> None:
    """Delete the buckets of these spaces with everything in them. Missing buckets are ignored."""
    settings = parse(url)
    connection = Connection(settings, on_disconnect=lambda: None)
    await connection.open()
    try:
        for stream in sorted({settings.layout.names(space).stream for space in spaces}):
            await connection.api(f"STREAM.DELETE.{stream}")
    finally:
        await connection.close()
