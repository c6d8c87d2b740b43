"""Settings of viewing history: the table `[history]` of `keyhouse.toml`."""

from typing import Annotated

from msgspec import Meta

from keyhouse.service.settings import JwtTenantSettings
from keyhouse.settings import setting

__all__ = ["HistorySettings"]


class HistorySettings(JwtTenantSettings, frozen=True, kw_only=True):
    jwt_tenant_claims: Annotated[
        tuple[str, ...],
        setting("Claims that name the profile. The first one that the token has is used."),
    ] = ("profileId", "sub")
    jwt_tenants_claim: Annotated[
        str | None, setting("Claim with a list of further profiles that the token reaches.")
    ] = "profiles"
    completed_percent: Annotated[
        float,
        Meta(gt=0, le=100),
        setting("Progress from which an event without a state counts as completed, in percent."),
    ] = 95.0
    entries_max: Annotated[
        int,
        Meta(ge=1, le=100_000),
        setting("Entries of one profile. The oldest is deleted when a further one is stored."),
    ] = 10_000
