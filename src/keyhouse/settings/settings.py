"""The settings of `keyhouse serve`, all of them, each with what it does and what it is when nobody says.

A system's own settings are a Struct in its service, by the same rules. Where a value comes from is in `sources`.
"""

import re
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from keyhouse.engines.registry import public_url
from keyhouse.errors import UsageError
from keyhouse.settings.parser import setting

__all__ = ["Settings"]

OFF: Final = "off"
EMBEDDED: Final = "embedded"
HTTP_DEFAULT: Final = "127.0.0.1:8080"

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\[\]:/@?#\s]+):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host, as it is bound, and a port; port 0 is any that is free."""

    host: str
    port: int

    @property
    def url(self) -> str:
        return (
            f"http://[{self.host}]:{self.port}"
            if ":" in self.host
            else f"http://{self.host}:{self.port}"
        )


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    systems: Annotated[
        tuple[str, ...], setting("The systems to serve; none named: all that have a service.")
    ] = ()
    data: Annotated[
        str,
        setting("The folder for files: databases, secrets, the embedded nats-server's streams."),
    ] = "keyhouse-data"
    engine: Annotated[
        str | None,
        setting(
            "The engine that holds the rows, as a URL; without it, a SQLite file for each system in the data folder.",
            secret=True,
        ),
    ] = None
    http: Annotated[
        str,
        setting("Where HTTP listens, as HOST:PORT; port 0 is any that is free; `off` for none."),
    ] = HTTP_DEFAULT
    nats: Annotated[
        str,
        setting(
            "The NATS servers to join, as a URL; `embedded` starts one on loopback, if a system needs it; `off` for none.",
            secret=True,
        ),
    ] = EMBEDDED
    nats_port: Annotated[
        int,
        msgspec.Meta(ge=0, le=65_535),
        setting("The port of the embedded nats-server, on 127.0.0.1; 0 is any that is free."),
    ] = 4222
    nats_credentials: Annotated[
        str | None,
        setting("A user's `.creds` file or seed, for the NATS servers that ask for one."),
    ] = None
    drain_seconds: Annotated[
        float,
        msgspec.Meta(ge=0, le=3_600),
        setting("How long requests under way may take to finish when the service is told to end."),
    ] = 10.0
    log_format: Annotated[
        Literal["auto", "json", "text"],
        setting("How a line of the log looks; `auto` is text on a terminal, and JSON elsewhere."),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        setting("The least grave lines that are logged."),
    ] = "info"

    traces: Annotated[
        str | None,
        setting(
            "The collector of traces (OTLP over HTTP), such as http://127.0.0.1:4318; without it, the one that "
            "OTEL_EXPORTER_OTLP_ENDPOINT names, or none.",
            secret=True,
        ),
    ] = None

    def __post_init__(self) -> None:
        if self.traces is not None and not re.match(r"https?://[^/\s]", self.traces):
            raise UsageError(
                "Where traces go can't be read: give http://host:4318.",
                traces=public_url(self.traces),
            )
        if self.http == OFF and self.nats == OFF:
            raise UsageError(
                "Both faces are off, so nothing could be asked: leave http or nats on."
            )
        _ = self.http_address
        if self.nats not in (EMBEDDED, OFF) and not re.match(r"(nats|tls)://[^/\s]", self.nats):
            raise UsageError(
                "Where NATS is can't be read: give nats://host:4222, embedded, or off.",
                nats=public_url(self.nats),
            )

    @property
    def http_address(self) -> Address | None:
        """`None` when HTTP is off; UsageError when it is no address."""
        if self.http == OFF:
            return None
        found = _ADDRESS.fullmatch(self.http)
        if found is None or int(found["port"]) > 65_535:
            raise UsageError(
                "Where HTTP listens can't be read: give HOST:PORT, such as 127.0.0.1:8080, or off.",
                http=self.http,
            )
        return Address(found["host"].strip("[]"), int(found["port"]))

    def shown(self) -> dict[str, Any]:
        """What was decided otherwise than by default, as it may be logged: of URLs, what is no secret."""
        said = {
            field.name: value
            for field in msgspec.structs.fields(self)
            if (value := getattr(self, field.name)) != field.default
        }
        return said | {
            name: public_url(said[name]) for name in ("nats", "engine", "traces") if name in said
        }
