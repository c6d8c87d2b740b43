"""The engine's URL, read once.

`nats://host:4222,other:4222/?bucket=media&replicas=3&sync=always`; user and password, or a token, stand in front of the
first host as in any NATS URL. `tls://` asks for an encrypted connection.
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from keyhouse.engines.jetstream.layout import Layout
from keyhouse.engines.url import public_url
from keyhouse.errors import UsageError
from keyhouse.nats.credentials import sign_in

VALUES_BYTES_MAX: Final = 64 * 1_024 * 1_024
"""Values that the mirror of one bucket keeps in memory; others are fetched when they are read."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`sync_always`: the operator says that the servers run with `sync_interval: always`; `monitor`, the address of a
    server's monitoring, lets us see for ourselves. `fresh_reads`: a read sees every commit that anyone was told of before.
    `create`: make a bucket that is not there.
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
        """Where the servers are, for errors."""
        return ",".join(public_url(server).partition("//")[2] for server in self.servers)

    def __post_init__(self) -> None:
        if self.replicas not in (1, 3, 5):
            raise UsageError("JetStream keeps 1, 3 or 5 replicas.", replicas=self.replicas)


def parse(url: str) -> Settings:
    try:
        parts = urlsplit(url)
        user, at, hosts = parts.netloc.rpartition("@")
        servers = tuple(f"{parts.scheme}://{user}{at}{host}" for host in hosts.split(",") if host)
        named = bool(servers) and all(urlsplit(server).port != 0 for server in servers)
    except ValueError:  # a port that is none, a bracket that is not closed
        named = False
    if not named or parts.path.strip("/"):
        raise UsageError(
            "A NATS URL names servers and settings: nats://host:4222/?bucket=name",
            url=public_url(url),
        ) from None
    options: dict[str, Any] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _OPTIONS:
            raise UsageError(
                "A NATS URL has no such setting.", setting=name, known=sorted(_OPTIONS)
            )
        field, read = _OPTIONS[name]
        try:
            options[field] = read(value)
        except (ValueError, KeyError):
            raise UsageError(
                "A setting in the NATS URL has no such value.", setting=name, value=value
            ) from None
    if "bucket" in options and "prefix" in options:
        raise UsageError(
            "A NATS URL names one bucket for all spaces, or the prefix of a bucket for each, not both."
        )
    if "prefix" in options:
        options["layout"] = Layout(None, options.pop("prefix"))
    elif "bucket" in options:
        options["layout"] = Layout(options.pop("bucket"))
    return Settings(servers=servers, **options)


def _credentials(path: str) -> str:
    """A file that can be used: the driver would look at it late, and say nothing that helps."""
    sign_in(path)
    return path


_OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "bucket": ("bucket", str),
    "prefix": ("prefix", str),
    "replicas": ("replicas", int),
    "sync": ("sync_always", {"always": True, "interval": False}.__getitem__),
    "monitor": ("monitor", str),
    "reads": ("fresh_reads", {"fresh": True, "mirror": False}.__getitem__),
    "credentials": ("credentials", _credentials),
    "values": ("values_bytes_max", int),
}
