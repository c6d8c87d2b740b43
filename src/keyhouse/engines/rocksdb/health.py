"""Health checks of a RocksDB folder, without opening it: another process may have it open."""

import os
from importlib.metadata import version

from keyhouse.engines.health import HealthCheck, format_size, free_space, measured


async def check_health(url: str) -> list[HealthCheck]:
    folder = url.partition(":")[2].removeprefix("///")
    size = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
    return [
        measured("RocksDB", f"through rocksdict {version('rocksdict')}"),
        measured("durability", "the log is synced before a commit returns"),
        measured("folder", format_size(size)),
        free_space(folder),
    ]
