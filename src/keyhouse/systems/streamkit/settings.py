"""What an operator may set of Streamkit, besides its tokens."""

from typing import Annotated, Final

from keyhouse.auth import JwtSettings
from keyhouse.errors import UsageError
from keyhouse.settings import setting
from keyhouse.systems.streamkit.versions import KeyVersion

TENANT_PATTERN: Final = r"(?!.*_streamkit(?:_|\Z))[A-Za-z0-9_-]{1,64}"
"""What a token may call a customer: what can stand in a key, so never a name that holds `_streamkit_` there."""


class Settings(JwtSettings, frozen=True, kw_only=True):
    """The table `[streamkit]` of the settings."""

    quota_keys: Annotated[int, setting("Configs and scenes that one customer may keep.")] = 10_000
    quota_bytes: Annotated[int, setting("Bytes of keys and values that one customer may keep.")] = (
        16 * 1_024 * 1_024
    )
    rate_per_second: Annotated[
        float, setting("Requests a second that one customer may make in the long run.")
    ] = 100.0
    rate_burst: Annotated[int, setting("Requests that one customer may make at once.")] = 1_000
    keys: Annotated[
        KeyVersion,
        setting("The version of the keys of what is new: v1, or v2 for the key migration."),
    ] = "v1"
    sweep_seconds: Annotated[float, setting("How often expired scenes are taken off the disk.")] = (
        60.0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("quota_keys", "quota_bytes", "rate_per_second", "rate_burst", "sweep_seconds"):
            if not getattr(self, name) > 0:
                raise UsageError(
                    "This setting must be greater than nothing.", setting=f"streamkit.{name}"
                )
