"""The health of a NATS server with JetStream: its version, how it keeps and syncs rows, its room, and what time it has.

`sync_interval` is told by a server's monitoring alone: without `monitor=` in the URL, it is what the URL says.
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
    connection = Connection(settings, on_disconnect=_unheard)
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
        facts = [
            HealthCheck("NATS", f"{connection.version}, through nats-py {version('nats-py')}"),
            *_sync(settings),
        ]
    finally:
        await connection.close()
    facts += [*_room(account)]
    return facts if stream is None else [*facts, *_kept(stream), *_clock(stream, between)]


def _sync(settings: Settings) -> Iterator[HealthCheck]:
    """Where the URL does not say sync=always, that the engine is not durable is a finding of its own."""
    if settings.sync_always and settings.monitor is not None:  # else it could not have been opened
        yield HealthCheck("durability", "sync_interval always, as the server's monitoring says")
    elif settings.sync_always:
        yield HealthCheck(
            "durability",
            "sync_interval always, as the URL says; with monitor=http://host:8222 it is looked up",
        )


def _room(account: dict[str, Any]) -> Iterator[HealthCheck]:
    used, most = account.get("storage", 0), account.get("limits", {}).get("max_storage", -1)
    if most <= 0:
        yield HealthCheck("storage", f"{format_size(used)}, without a limit of the account")
    elif used > 0.9 * most:
        fix = "Raise the account's max_storage, or delete streams: what does not fit is refused."
        yield HealthCheck("storage", f"{format_size(used)} of {format_size(most)}", "warn", fix)
    else:
        yield HealthCheck("storage", f"{format_size(used)} of {format_size(most)}")


def _kept(stream: dict[str, Any]) -> Iterator[HealthCheck]:
    config, cluster = stream["config"], stream.get("cluster", {})
    name, replicas = config["name"], config.get("num_replicas", 1)
    if config.get("storage") != "file":
        fix = "A restart loses every row: move them to a bucket with file storage, by `keyhouse move`."
        yield HealthCheck("bucket", f"{name}, in {config.get('storage')}", "bad", fix)
    else:
        yield HealthCheck("bucket", f"{name}, in files, {format_size(stream['state']['bytes'])}")
    behind = [
        each["name"]
        for each in cluster.get("replicas", ())
        if not each.get("current") or each.get("offline")
    ]
    if behind:
        fix = "Start these servers, or wait until they have caught up: until then fewer may fail."
        yield HealthCheck(
            "replicas", f"{replicas}, of which behind or away: {', '.join(behind)}", "warn", fix
        )
    else:
        yield HealthCheck(
            "replicas",
            f"{replicas}" + (", all current" if replicas > 1 else ": one disk holds every row"),
        )


def _clock(stream: dict[str, Any], between: float) -> Iterator[HealthCheck]:
    if told := stream.get("ts"):
        yield clock_skew(datetime.fromisoformat(_microseconds(told)).timestamp() - between)


def _microseconds(told: str) -> str:
    """NATS tells nanoseconds, which Python before 3.12 does not read."""
    front, _, rest = told.rstrip("Z").partition(".")
    return f"{front}.{rest[:6]:0<6}+00:00"


def _unheard() -> None:
    """Who looks is told by the request that fails."""
