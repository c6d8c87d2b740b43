"""What an operator may set of the HTTP face."""

from typing import Literal
from urllib.parse import urlsplit

import msgspec

from keyhouse.errors import UsageError
from keyhouse.limits import HTTP_BODY_BYTES_MAX


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[http]` of the settings.

    `origins` are the sites whose pages may call from a browser: `https://panel.example`, or `*` for all. `credentials` lets
    those pages send cookies, and can't stand with `*`. `access_log` says which requests get a line: all, those that failed
    (status 500 and up), or none; slow ones, and errors of ours, always do.
    """

    body_bytes_max: int = HTTP_BODY_BYTES_MAX
    body_seconds_max: float = 30.0
    origins: tuple[str, ...] = ()
    credentials: bool = False
    access_log: Literal["all", "failed", "off"] = "failed"
    slow_seconds: float = 1.0
    drain_seconds: float = 10.0
    docs: bool = True

    def __post_init__(self) -> None:
        if self.credentials and "*" in self.origins:
            raise UsageError("Cookies for every site would be no protection at all: name the origins.", origins="*")
        for origin in self.origins:
            if origin != "*" and not _is_origin(origin):
                raise UsageError("An origin is a scheme and a host, and nothing behind them.", origin=origin)
        for name in ("body_bytes_max", "body_seconds_max", "slow_seconds"):
            if not getattr(self, name) > 0:
                raise UsageError("This setting must be greater than nothing.", setting=name)


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and text == f"{parts.scheme}://{parts.netloc}"
