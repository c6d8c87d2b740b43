"""Settings of the HTTP layer: the table `[http]`."""

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from keyhouse.errors import UsageError
from keyhouse.http.client_address import trusted_proxies
from keyhouse.http.limits import (
    HTTP_BODY_BYTES_MAX,
    HTTP_HEADER_TIMEOUT_SECONDS,
    HTTP_WRITE_TIMEOUT_SECONDS,
    TENANT_EVENT_STREAMS_MAX,
)
from keyhouse.settings.parser import setting

_POSITIVE = msgspec.Meta(gt=0)
_ROOT_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    body_bytes_max: Annotated[
        int,
        _POSITIVE,
        setting("The largest body of a request, unless its route sets another limit."),
    ] = HTTP_BODY_BYTES_MAX
    body_timeout_seconds: Annotated[
        float, _POSITIVE, setting("Timeout for receiving the body of a request.")
    ] = 30.0
    header_timeout_seconds: Annotated[
        float,
        _POSITIVE,
        setting("Timeout for receiving the headers of a request; then it is disconnected."),
    ] = HTTP_HEADER_TIMEOUT_SECONDS
    write_timeout_seconds: Annotated[
        float,
        _POSITIVE,
        setting("Disconnect a client that reads nothing of its response for this long."),
    ] = HTTP_WRITE_TIMEOUT_SECONDS
    tenant_streams_max: Annotated[
        int,
        msgspec.Meta(ge=0),
        setting(
            "Event streams that one tenant of a service (one user, where users take turns), or one"
            " address without a caller, may have open on one host; 0: unlimited."
        ),
    ] = TENANT_EVENT_STREAMS_MAX
    cors_origins: Annotated[
        tuple[str, ...],
        setting(
            "Sites whose pages may call from a browser: `https://panel.example`, or `*`; also"
            " `--cors`."
        ),
    ] = ()
    credentials: Annotated[
        bool, setting("Whether pages of `cors_origins` may send cookies; not with `*`.")
    ] = False
    proxies: Annotated[
        tuple[str, ...],
        setting(
            "Networks of the proxies in front of the service, whose `X-Forwarded-For` and "
            "`X-Forwarded-Proto` are believed."
        ),
    ] = ()
    root_path: Annotated[
        str,
        setting(
            "The path that a proxy removes before it passes a request on, such as `/keyhouse`: "
            "pages put it before their links."
        ),
    ] = ""
    access_log: Annotated[
        Literal["all", "failed", "off"],
        setting(
            "Requests to log: all, those with status 500 and above, or none; always slow ones."
        ),
    ] = "failed"
    slow_seconds: Annotated[
        float, _POSITIVE, setting("Requests that take longer are logged as warnings.")
    ] = 1.0
    drain_seconds: Annotated[
        float,
        msgspec.Meta(ge=0),
        setting("Timeout for requests in flight at shutdown, if shorter than the service's."),
    ] = 10.0
    docs: Annotated[bool, setting("Whether to serve `/docs` and the OpenAPI documents.")] = True

    def __post_init__(self) -> None:
        if self.credentials and "*" in self.cors_origins:
            raise UsageError(
                "Cookies from pages of every site are unsafe: list the origins.", origins="*"
            )
        for origin in self.cors_origins:
            if origin != "*" and not _is_origin(origin):
                raise UsageError(
                    "An origin is a scheme and a host, without a path: https://panel.example, or"
                    " *.",
                    origin=origin,
                )
        trusted_proxies(self.proxies)
        if self.root_path and not _ROOT_PATH.fullmatch(self.root_path):
            raise UsageError(
                "A root path starts with a slash and does not end with one, as /keyhouse does.",
                root_path=self.root_path,
            )


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return (
        parts.scheme in ("http", "https")
        and bool(parts.netloc)
        and text == f"{parts.scheme}://{parts.netloc}"
    )
