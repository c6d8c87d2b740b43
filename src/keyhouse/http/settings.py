"""What an operator may set of the HTTP face."""

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from keyhouse.errors import UsageError
from keyhouse.limits import HTTP_BODY_BYTES_MAX, HTTP_HEAD_SECONDS_MAX, HTTP_STALL_SECONDS_MAX
from keyhouse.settings.parser import setting


class HttpSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[http]` of the settings."""

    body_bytes_max: Annotated[
        int, setting("The largest body of a request, where its route does not say another.")
    ] = HTTP_BODY_BYTES_MAX
    body_seconds_max: Annotated[float, setting("How long a body may take to come in.")] = 30.0
    head_seconds_max: Annotated[
        float,
        setting(
            "How long the head of a request may take to come in; then the connection is closed."
        ),
    ] = HTTP_HEAD_SECONDS_MAX
    stall_seconds_max: Annotated[
        float,
        setting("How long a client may take nothing of its answer; then the connection is closed."),
    ] = HTTP_STALL_SECONDS_MAX
    origins: Annotated[
        tuple[str, ...],
        setting(
            "The sites whose pages may call from a browser: `https://panel.example`, or `*` for all."
        ),
    ] = ()
    credentials: Annotated[
        bool, setting("Whether those pages may send cookies; it can't stand with `*`.")
    ] = False
    access_log: Annotated[
        Literal["all", "failed", "off"],
        setting(
            "Which requests get a line: all, those with status 500 and up, or none; slow ones always do."
        ),
    ] = "failed"
    slow_seconds: Annotated[
        float, setting("A request that takes longer is logged as a warning.")
    ] = 1.0
    drain_seconds: Annotated[
        float, setting("How long requests under way may take at the end, if that is to be shorter.")
    ] = 10.0
    docs: Annotated[bool, setting("Whether `/docs` and the OpenAPI document are there.")] = True

    def __post_init__(self) -> None:
        if self.credentials and "*" in self.origins:
            raise UsageError(
                "Cookies for every site would be no protection at all: name the origins.",
                origins="*",
            )
        for origin in self.origins:
            if origin != "*" and not _is_origin(origin):
                raise UsageError(
                    "An origin is a scheme and a host, and nothing behind them.", origin=origin
                )
        for name in (
            "body_bytes_max",
            "body_seconds_max",
            "head_seconds_max",
            "stall_seconds_max",
            "slow_seconds",
        ):
            if not getattr(self, name) > 0:
                raise UsageError("This setting must be greater than nothing.", setting=name)


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return (
        parts.scheme in ("http", "https")
        and bool(parts.netloc)
        and text == f"{parts.scheme}://{parts.netloc}"
    )
