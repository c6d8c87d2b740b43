"""Requests and responses of `auth/`."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from keyhouse_playlist.limits import BLOCK_HOURS_DEFAULT, BLOCK_HOURS_MAX, OTP_SECONDS
from keyhouse_playlist.messages import Username
from keyhouse_playlist.names import checked_username
from keyhouse_playlist.schema import Role


class OtpRequestBody(msgspec.Struct, forbid_unknown_fields=True):
    username: Username

    def __post_init__(self) -> None:
        self.username = checked_username(self.username)


class OtpSent(msgspec.Struct):
    status: Literal["sent"] = "sent"
    expires_in_seconds: int = OTP_SECONDS


class OtpVerifyBody(msgspec.Struct, forbid_unknown_fields=True):
    username: Username
    otp: Annotated[str, Meta(max_length=64, examples=["7K2QX94B"])]

    def __post_init__(self) -> None:
        self.username = checked_username(self.username)


class OtpResult(msgspec.Struct, omit_defaults=True):
    status: Literal["ok", "invalid", "locked", "unrequested"]
    role: Role | UnsetType = UNSET
    attempts_remaining: int | UnsetType = UNSET
    retry_after_seconds: int | UnsetType = UNSET
    can_block_ip: bool | UnsetType = UNSET
    default_block_hours: int | UnsetType = UNSET


class CodeHeaders(msgspec.Struct):
    """`cookie` has the cookie of the client that requested a code."""

    user_agent: Annotated[str | None, Meta(description="The client's program.")] = msgspec.field(
        default=None, name="User-Agent"
    )
    cookie: Annotated[str, Meta(description="Cookies, such as that of a requested code.")] = ""


class IpBlockBody(msgspec.Struct, forbid_unknown_fields=True):
    action: Literal["block"]
    hours: Annotated[int, Meta(ge=1, le=BLOCK_HOURS_MAX)] = BLOCK_HOURS_DEFAULT
    ip: Annotated[str, Meta(max_length=64)] | None = None


class IpBlocked(msgspec.Struct):
    blocked_until: str
    status: Literal["blocked"] = "blocked"


class SessionReply(msgspec.Struct):
    username: str
    role: str
    expires_at: str
