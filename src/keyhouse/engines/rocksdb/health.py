"""Health checks of a RocksDB folder, without opening it: another process may have it open."""

import os
from importlib.metadata import version

from keyhouse.engines.health import HealthCheck, format_size, free_space


async def check_health(url: str) -> list[HealthCheck]:
    folder = url.partition(":")[2].removeprefix("///")
    size = sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
    return [
        HealthCheck("RocksDB", f"through rocksdict {version('rocksdict')}"),
        HealthCheck("durability", "the log is synced before a commit returns"),
        HealthCheck("folder", format_size(size)),
        *free_space(folder),
    ]
