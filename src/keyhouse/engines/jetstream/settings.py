"""Settings parsed from the engine's URL.

`nats://host:4222,other:4222/?bucket=media&replicas=3&sync=always`. User and password, or a token,
precede the first host as in any NATS URL. `tls://` requires an encrypted connection.
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from keyhouse.advice.nearest import nearest
from keyhouse.engines.jetstream.layout import Layout
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.nats.credentials import sign_in

VALUES_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Size of the value cache per bucket; evicted values are fetched when they are read."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`sync_always`: the operator states that the servers run with `sync_interval: always`;
    `monitor`, a server's monitoring address, lets the engine verify it. `fresh_reads`: a read sees
    every commit acknowledged before it. `create`: create a missing bucket.
    """

    servers: tuple[str, ...]
    layout: Layout = Layout()
    replicas: int = 1
    sync_always: bool = False
    monitor: str | None = None
    fresh_reads: bool = True
    credentials: str | None = None
    values_bytes_max: int = VALUES_BYTES_MAX
    create: bool = True

    @property
    def address(self) -> str:
        """Addresses of the servers without credentials, for errors."""
        return ",".join(public_url(server).partition("//")[2] for server in self.servers)

    def __post_init__(self) -> None:
        if self.replicas not in (1, 3, 5):
            raise UsageError(
                "Invalid number of replicas: JetStream supports 1, 3 or 5.", replicas=self.replicas
            )


def parse(url: str) -> Settings:
    try:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        servers = tuple(f"{parts.scheme}://{user}{at}{host}" for host in hosts.split(",") if host)
        is_valid = bool(servers) and all(urlsplit(server).port != 0 for server in servers)
    except ValueError:  # an invalid port, an unclosed bracket
        is_valid = False
    if not is_valid or parts.path.strip("/"):
        raise UsageError(
            "Invalid NATS URL; write nats://host:4222/?bucket=name",
            url=public_url(url),
        ) from None
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            raise UsageError(
                "Unknown setting in the NATS URL.", setting=name, **nearest(name, sorted(OPTIONS))
            )
        field, read = OPTIONS[name]
        try:
            options[field] = read(value)
        except (ValueError, KeyError):
            raise UsageError(
                "Invalid value of a setting in the NATS URL.", setting=name, value=value
            ) from None
    if "bucket" in options and "prefix" in options:
        raise UsageError(
            "A NATS URL sets bucket= (one for all spaces) or prefix= (one per space), not both."
        )
    if "prefix" in options:
        options["layout"] = Layout(None, options.pop("prefix"))
    elif "bucket" in options:
        options["layout"] = Layout(options.pop("bucket"))
    return Settings(servers=servers, **options)


def _credentials(path: str) -> str:
    """Check that the file is usable: the driver would read it late and report no useful error."""
    sign_in(path)
    return path


OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "bucket": ("bucket", str),
    "prefix": ("prefix", str),
    "replicas": ("replicas", int),
    "sync": ("sync_always", {"always": True, "interval": False}.__getitem__),
    "monitor": ("monitor", str),
    "reads": ("fresh_reads", {"fresh": True, "mirror": False}.__getitem__),
    "credentials": ("credentials", _credentials),
    "values": ("values_bytes_max", int),
}
