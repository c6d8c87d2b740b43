"""Buckets removed as a whole, beside the contract: for whoever made them for a while."""

from collections.abc import Iterable

from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.settings import parse


async def remove_buckets(url: str, spaces: Iterable[str]) -> None:
    """Delete the buckets that hold these spaces, with all else that they hold. One that is not there is no error."""
    settings = parse(url)
    connection = Connection(settings, on_disconnect=lambda: None)
    await connection.open()
    try:
        for stream in sorted({settings.layout.names(space).stream for space in spaces}):
            await connection.api(f"STREAM.DELETE.{stream}")
    finally:
        await connection.close()
