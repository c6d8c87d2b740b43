"""Health checks of a NATS server with JetStream: version, durability, replicas, storage and clock.

Only a server's monitoring endpoint reports `sync_interval`: without `monitor=` in the URL, the
check repeats what the URL states.
"""

import time
from collections.abc import Iterator
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final

from keyhouse.engines.health import HealthCheck, clock_skew, format_size, measured
from keyhouse.engines.jetstream.connection import Connection
from keyhouse.engines.jetstream.layout import BucketNames
from keyhouse.engines.jetstream.settings import Settings, parse

MIRRORED_KEYS_MAX: Final = 2_000_000
"""Keys of a bucket, beyond which another engine is the better choice: every process holds all of
them in memory, and reads all of them when it starts (docs/guides/jetstream.md)."""


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
            measured("NATS", f"{connection.version}, through nats-py {version('nats-py')}"),
            *_durability(settings),
        ]
    finally:
        await connection.close()
    checks += storage_checks(account)
    return checks if stream is None else [*checks, *bucket_checks(stream), *_clock(stream, between)]


def _durability(settings: Settings) -> list[HealthCheck]:
    """Without sync=always the engine is not durable, which is reported elsewhere."""
    if not settings.sync_always:
        return []
    source = (
        "the URL; monitor=http://host:8222 would verify it"
        if settings.monitor is None
        else "the server's monitoring endpoint"  # opening verified it
    )
    return [measured("durability", f"sync_interval always, according to {source}")]


def storage_checks(account: dict[str, Any]) -> list[HealthCheck]:
    used, most = account.get("storage", 0), account.get("limits", {}).get("max_storage", -1)
    limit = f" of {format_size(most)}" if most > 0 else ", no account limit"
    fix = "Raise the account's max_storage, or delete streams: writes beyond it fail."
    return [measured("storage", format_size(used) + limit, fix, warn=0 < 0.9 * most < used)]


def bucket_checks(stream: dict[str, Any]) -> list[HealthCheck]:
    config, name = stream["config"], stream["config"]["name"]
    replicas, in_files = config.get("num_replicas", 1), config.get("storage") == "file"
    lagging = [
        each["name"]
        for each in stream.get("cluster", {}).get("replicas", ())
        if not each.get("current") or each.get("offline")
    ]
    state = ", all current" if replicas > 1 else ": one disk holds every row"
    messages = stream["state"].get("messages", 0)
    return [
        measured(
            "bucket",
            f"{name}, in files, {format_size(stream['state']['bytes'])}"
            if in_files
            else f"{name}, in {config.get('storage')}",
            "A restart loses every row: `keyhouse move` them to a bucket with file storage.",
            bad=not in_files,
        ),
        measured(
            "keys",
            f"about {messages:,}, in the memory of every process",
            "Move the store to PostgreSQL or DynamoDB with `keyhouse move`, or give its spaces"
            f" several buckets: a process mirrors up to {MIRRORED_KEYS_MAX:,} keys well.",
            warn=messages > MIRRORED_KEYS_MAX,
        ),
        measured(
            "replicas",
            f"{replicas}" + (f", lagging or offline: {', '.join(lagging)}" if lagging else state),
            "Start these servers, or wait until they have caught up: until then fewer can fail.",
            warn=bool(lagging),
        ),
    ]


def _clock(stream: dict[str, Any], between: float) -> Iterator[HealthCheck]:
    if timestamp := stream.get("ts"):
        yield clock_skew(datetime.fromisoformat(microseconds(timestamp)).timestamp() - between)


def microseconds(timestamp: str) -> str:
    """Cut nanoseconds to microseconds: Python before 3.12 does not parse them."""
    front, _, rest = timestamp.rstrip("Z").partition(".")
    return f"{front}.{rest[:6]:0<6}+00:00"


def _ignore_disconnect() -> None:
    """Ignore a lost connection: the next request raises."""
