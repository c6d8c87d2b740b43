"""Settings of the playlist service: the table `[playlist]` of `keyhouse.toml`."""

from typing import Annotated, Literal

import msgspec

from keyhouse.service.settings import (
    RateBurst,
    RatePerSecond,
    SessionHours,
    SlowSeconds,
    SweepSeconds,
)
from keyhouse.settings import setting

__all__ = ["PlaylistSettings"]

_NotNegative = msgspec.Meta(ge=0)
_Token = msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,100}$(?!\n)")


class PlaylistSettings(msgspec.Struct, frozen=True, kw_only=True):
    channel: Annotated[
        str, _Token, setting("The CyTube channel whose queue is shown and changed.")
    ] = "lounge"
    domain: Annotated[str, setting("The CyTube server of the channel.")] = "cytu.be"
    namespace: Annotated[
        str,
        msgspec.Meta(min_length=1, max_length=100),
        setting("The namespace of all keys: `ns/{namespace}/…`."),
    ] = "default"
    admins: Annotated[
        tuple[str, ...],
        setting("Users who are admins, in addition to those in the store."),
    ] = ()
    delivery: Annotated[
        Literal["bus", "console"],
        setting(
            "How codes reach users: `bus` sends a private message through the channel's robot,"
            " `console` prints them, for development."
        ),
    ] = "bus"
    public_read: Annotated[
        bool, setting("Signed-out callers may read the catalog, playlists and statistics.")
    ] = False
    mediacms_url: Annotated[
        str | None,
        setting("Address of the MediaCMS whose media are the catalog."),
    ] = None
    mediacms_token: Annotated[str | None, setting("API token for that MediaCMS.", secret=True)] = (
        None
    )
    queue_interval_seconds: Annotated[
        float,
        _NotNegative,
        setting("Shortest time between two additions to the channel's queue."),
    ] = 0.5
    robot_timeout_seconds: Annotated[
        float, msgspec.Meta(gt=0), setting("Time within which the robot must confirm an addition.")
    ] = 8.0
    otp_key: Annotated[
        Annotated[str, msgspec.Meta(min_length=32)] | None,
        setting(
            "Secret with which codes are hashed, at least 32 characters; the same for all processes"
            " of a namespace. Default: generated in the data folder.",
            secret=True,
        ),
    ] = None
    session_hours: SessionHours = 12.0
    rate_per_second: RatePerSecond = 50.0
    rate_burst: RateBurst = 200
    sweep_seconds: SweepSeconds = 60.0
    slow_seconds: SlowSeconds = 0.5
