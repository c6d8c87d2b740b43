"""Health checks of a NATS server with JetStream: version, durability, replicas, storage and clock.

Only a server's monitoring endpoint reports `sync_interval`: without `monitor=` in the URL, the
check repeats what the URL states.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from typing import Any

from keyhouse.engines.health import HealthCheck, clock_skew, format_size
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.layout import BucketNames
from keyhouse.engines.jetstream.settings import Settings, parse


async def check_health(url: str) -> list[HealthCheck]:
    settings = parse(url)
    connection = Connection(settings, on_disconnect=_ignore_disconnect)
    await connection.open()
    try:
        account = await connection.api("INFO") or {}
        bucket = settings.layout.bucket
        before = time.time()
        stream = (
            None
            if bucket is None
            else await connection.api(f"STREAM.INFO.{BucketNames(bucket).stream}")
        )
        between = (before + time.time()) / 2
        checks = [
            HealthCheck("NATS", f"{connection.version}, through nats-py {version('nats-py')}"),
            *_durability(settings),
        ]
    finally:
        await connection.close()
    checks += [*_storage(account)]
    return checks if stream is None else [*checks, *_bucket(stream), *_clock(stream, between)]


def _durability(settings: Settings) -> Iterator[HealthCheck]:
    """Without sync=always the engine is not durable, which is reported elsewhere."""
    if settings.sync_always and settings.monitor is not None:  # opening verified it
        yield HealthCheck(
            "durability", "sync_interval always, according to the server's monitoring endpoint"
        )
    elif settings.sync_always:
        yield HealthCheck(
            "durability",
            "sync_interval always, according to the URL; monitor=http://host:8222 would verify it",
        )


def _storage(account: dict[str, Any]) -> Iterator[HealthCheck]:
    used, most = account.get("storage", 0), account.get("limits", {}).get("max_storage", -1)
    if most <= 0:
        yield HealthCheck("storage", f"{format_size(used)}, no account limit")
    elif used > 0.9 * most:
        fix = "Raise the account's max_storage, or delete streams: writes beyond it fail."
        yield HealthCheck("storage", f"{format_size(used)} of {format_size(most)}", "warn", fix)
    else:
        yield HealthCheck("storage", f"{format_size(used)} of {format_size(most)}")


def _bucket(stream: dict[str, Any]) -> Iterator[HealthCheck]:
    config, cluster = stream["config"], stream.get("cluster", {})
    name, replicas = config["name"], config.get("num_replicas", 1)
    if config.get("storage") != "file":
        fix = "A restart loses every row: `keyhouse move` them to a bucket with file storage."
        yield HealthCheck("bucket", f"{name}, in {config.get('storage')}", "bad", fix)
    else:
        yield HealthCheck("bucket", f"{name}, in files, {format_size(stream['state']['bytes'])}")
    lagging = [
        each["name"]
        for each in cluster.get("replicas", ())
        if not each.get("current") or each.get("offline")
    ]
    if lagging:
        fix = "Start these servers, or wait until they have caught up: until then fewer can fail."
        yield HealthCheck(
            "replicas", f"{replicas}, lagging or offline: {', '.join(lagging)}", "warn", fix
        )
    else:
        yield HealthCheck(
            "replicas",
            f"{replicas}" + (", all current" if replicas > 1 else ": one disk holds every row"),
        )


def _clock(stream: dict[str, Any], between: float) -> Iterator[HealthCheck]:
    if timestamp := stream.get("ts"):
        yield clock_skew(datetime.fromisoformat(_microseconds(timestamp)).timestamp() - between)


def _microseconds(timestamp: str) -> str:
    """Cut nanoseconds to microseconds: Python before 3.12 does not parse them."""
    front, _, rest = timestamp.rstrip("Z").partition(".")
    return f"{front}.{rest[:6]:0<6}+00:00"


def _ignore_disconnect() -> None:
    """Ignore a lost connection: the next request raises."""
