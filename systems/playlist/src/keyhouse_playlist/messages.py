"""Types that the requests and responses of several rooms share. Others are in their room."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from keyhouse.normalization import CONTROLS
from keyhouse_playlist.limits import PLAYLIST_NAME_CHARS_MAX, USERNAME_CHARS_MAX

API: Final = "/api/v1"
"""The path of the HTTP routes for programs, below that of the service."""

_NAME = rf"^\s*[^\s{CONTROLS}]([^{CONTROLS}]*[^\s{CONTROLS}])?\s*$"

Username = Annotated[
    str,
    Meta(
        max_length=USERNAME_CHARS_MAX,
        pattern=_NAME,
        examples=["TacoBelmont"],
    ),
]
PlaylistName = Annotated[
    str,
    Meta(
        max_length=PLAYLIST_NAME_CHARS_MAX,
        examples=["Halloween Marathon"],
        extra_json_schema={"pattern": _NAME},
    ),
]
PlaylistId = Annotated[str, Meta(max_length=200)]


class Done(msgspec.Struct):
    status: Literal["ok"] = "ok"
