"""Settings of Streamkit: the table `[streamkit]` of `keyhouse.toml`."""

from typing import Annotated, Final, Literal

from keyhouse.service.settings import (
    JwtTenantSettings,
    QuotaBytes,
    QuotaKeys,
    SweepSeconds,
)
from keyhouse.settings import setting

__all__ = ["TENANT_PATTERN", "KeyVersion", "StreamkitSettings"]

KeyVersion = Literal["v1", "v2"]

TENANT_PATTERN: Final = r"(?!.*_streamkit(?:_|\Z))[A-Za-z0-9_-]{1,64}"
"""Customers that a token may name: those whose id can be part of a key."""


class StreamkitSettings(JwtTenantSettings, frozen=True, kw_only=True):
    quota_keys: QuotaKeys = 10_000
    quota_bytes: QuotaBytes = 16 * 1_024 * 1_024
    sweep_seconds: SweepSeconds = 60.0
    keys: Annotated[
        KeyVersion,
        setting("Version of the keys of new records: v1, or v2 for the key migration."),
    ] = "v1"
