"""Settings of the Studio, and the scopes of its operators."""

from typing import Annotated, Final

from msgspec import Meta

from keyhouse.auth import JwtSettings
from keyhouse.errors import UsageError
from keyhouse.service.spec import Service, ServiceContext, ServiceSpec
from keyhouse.settings.parser import setting

__all__ = ["NAME", "SCOPES", "StudioSettings", "studio_service"]

NAME: Final = "studio"

READ: Final = "studio:read"
WRITE: Final = "studio:write"
ADMIN: Final = "studio:admin"
SCOPES: Final = (READ, WRITE, ADMIN)
"""Look at keyspaces; change records; repair, delete many records, reveal private members."""

OPERATOR_PATTERN: Final = r"[A-Za-z0-9_.@-]{1,64}"


class StudioSettings(JwtSettings, frozen=True, kw_only=True):
    enabled: Annotated[bool, setting("Serve the Studio at `/studio/`, if HTTP is on.")] = True
    session_hours: Annotated[
        float, Meta(gt=0), setting("Hours after which a session that is not used ends.")
    ] = 8.0
    jwt_scopes: Annotated[
        tuple[str, ...], setting("Scopes of a token without a `scope` claim.")
    ] = (READ,)


def studio_service() -> Service:
    """Return the declaration by which tokens of operators are made."""
    return Service(
        settings=StudioSettings,
        build=_not_built,
        tenant_pattern=OPERATOR_PATTERN,
        operator_scopes=SCOPES,
    )


def _not_built(context: ServiceContext, settings: StudioSettings) -> ServiceSpec:
    raise UsageError("The Studio needs the other services: see `Studio`.")
