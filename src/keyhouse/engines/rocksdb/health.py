"""The health of a RocksDB folder, without opening it: it belongs to one process, which may be another."""

import os
from importlib.metadata import version

from keyhouse.engines.health import Fact, room_at, size_shown


async def look(url: str) -> list[Fact]:
    folder = url.partition(":")[2].removeprefix("///")
    size = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
    return [
        Fact("RocksDB", f"through rocksdict {version('rocksdict')}"),
        Fact("durability", "the log is synced before a commit returns"),
        Fact("folder", size_shown(size)),
        *room_at(folder),
    ]
