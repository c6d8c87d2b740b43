"""The settings of `keyhouse serve`, each with its description and default.

A system's own settings are a Struct in its service, with the same rules. `sources` loads the
values.
"""

import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.settings.parser import setting

__all__ = ["EMBEDDED", "OFF", "Address", "ServerSettings"]

_PORT_MAX = 65_535

WORKERS_MAX: Final = 64
"""Processes of one `keyhouse serve`."""

_CPU_MAX: Final = Path("/sys/fs/cgroup/cpu.max")
"""The share of a container in the processors: microseconds, in a period of so many."""

OFF: Final = "off"
EMBEDDED: Final = "embedded"
HTTP_DEFAULT: Final = "127.0.0.1:8080"

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@?#\s]+):(?P<port>[0-9]{1,5})")


def usable_cores() -> int:
    """Return the number of cores that this program may use: by its affinity, and by the share of
    its container."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # ValueError: "max", no limit
        quota, period = map(int, _CPU_MAX.read_text().split())
        cores = min(cores, max(1, quota // period))
    return min(cores, WORKERS_MAX)


class Address(NamedTuple):
    """A host and a port to bind; port 0 is any free port."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return (
            f"http://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"http://{self.host}:{self.port}"
        )


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    systems: Annotated[
        tuple[str, ...], setting("The systems to serve. Default: every system with a service.")
    ] = ()
    data: Annotated[
        str,
        setting(
            "The data folder: databases, secrets, the streams of the embedded nats-server.",
            path=True,
        ),
    ] = "keyhouse-data"
    engine: Annotated[
        str | None,
        setting(
            "URL of the engine that stores the rows. Default: one SQLite file per system in the "
            "data folder.",
            secret=True,
            path=True,
        ),
    ] = None
    http: Annotated[
        str,
        setting("HTTP listen address, HOST:PORT; port 0 picks a free port, `off` disables HTTP."),
    ] = HTTP_DEFAULT
    pages: Annotated[
        str | None,
        setting("A folder of your own pages, which everybody can read at `/pages/`.", path=True),
    ] = None
    nats: Annotated[
        str,
        setting(
            "URL of the NATS servers; `embedded` starts one on loopback if a system needs it, `off`"
            " disables NATS.",
            secret=True,
        ),
    ] = EMBEDDED
    nats_port: Annotated[
        int,
        msgspec.Meta(ge=0, le=65_535),
        setting("Port of the embedded nats-server on 127.0.0.1; 0 picks a free port."),
    ] = 4222
    nats_auth: Annotated[
        bool,
        setting(
            "Require a password of clients of the embedded nats-server; otherwise local programs"
            " reach the operations of plugins and served schemas without one. It is new at each"
            " start, in a file that only this user can read; commands and `PluginStorage.connect`"
            " find it in the data folder."
        ),
    ] = False
    nats_monitor_port: Annotated[
        int,
        msgspec.Meta(ge=0, le=65_535),
        setting("Port of the embedded nats-server's monitoring on 127.0.0.1; 0: none."),
    ] = 0
    nats_partitions: Annotated[
        Literal["auto", "on", "off"],
        setting(
            "Receive requests over 16 connections, by the hash of the tenant, so that a flood of"
            " one delays few others; `auto` is on with the embedded nats-server. Other servers need"
            " subject mappings: see the documentation."
        ),
    ] = "auto"
    nats_credentials: Annotated[
        str | None,
        setting(
            "A user's file of credentials (`.creds`) or of its seed, for NATS servers that require"
            " one.",
            path=True,
        ),
    ] = None
    workers: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=WORKERS_MAX)] | Literal["auto"],
        setting(
            "Processes that serve, which share the data folder and the HTTP address; `auto`: one"
            " for each core that the program may use. Several need engines that processes can"
            " share: SQLite, PostgreSQL, NATS, DynamoDB."
        ),
    ] = 1
    drain_seconds: Annotated[
        float,
        msgspec.Meta(ge=0, le=3_600),
        setting("How long requests in flight may take to finish during shutdown."),
    ] = 10.0
    log_format: Annotated[
        Literal["auto", "json", "text"],
        setting("Log line format; `auto` is text on a terminal and JSON elsewhere."),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], setting("Minimum log level.")
    ] = "info"

    otlp_endpoint: Annotated[
        str | None,
        setting(
            "Trace collector (OTLP over HTTP), such as http://127.0.0.1:4318. Default: the value of"
            " OTEL_EXPORTER_OTLP_ENDPOINT, or no traces.",
            secret=True,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.otlp_endpoint is not None and not re.match(r"https?://[^/\s]", self.otlp_endpoint):
            raise UsageError(
                "Invalid trace collector URL: give http://host:4318.",
                otlp_endpoint=public_url(self.otlp_endpoint),
            )
        if self.http == OFF and self.nats == OFF:
            raise UsageError("HTTP and NATS are both off: leave at least one on.")
        if self.http == OFF and self.pages is not None:
            raise UsageError("Pages are served over HTTP, which is off.", pages=self.pages)
        _ = self.http_address
        if self.nats not in (EMBEDDED, OFF) and not re.match(r"(nats|tls)://[^/\s]", self.nats):
            raise UsageError(
                "Invalid NATS URL: give nats://host:4222, embedded, or off.",
                nats=public_url(self.nats),
            )

    @property
    def http_address(self) -> Address | None:
        """Return None when HTTP is off. Raises UsageError for an invalid address."""
        if self.http == OFF:
            return None
        match = _ADDRESS.fullmatch(self.http)
        if match is None or int(match["port"]) > _PORT_MAX:
            raise UsageError(
                "Invalid HTTP address: give HOST:PORT, such as 127.0.0.1:8080, or off.",
                http=self.http,
            )
        return Address(match["host"].strip("[]"), int(match["port"]))

    @property
    def worker_count(self) -> int:
        return usable_cores() if self.workers == "auto" else self.workers

    @property
    def has_nats_partitions(self) -> bool:
        if self.nats_partitions == "auto":
            return self.nats == EMBEDDED
        return self.nats_partitions == "on"

    def for_log(self) -> dict[str, Any]:
        """Return the settings that differ from their defaults, with secrets removed from URLs."""
        changed = {
            field.name: value
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        return changed | {
            name: public_url(changed[name])
            for name in ("nats", "engine", "otlp_endpoint")
            if name in changed
        }
