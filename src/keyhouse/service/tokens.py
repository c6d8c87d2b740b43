"""The tokens of `keyhouse token SYSTEM`, signed with the secret of the service on this machine."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from keyhouse.advice.nearest import nearest
from keyhouse.auth import JwtSettings, mint
from keyhouse.errors import UsageError
from keyhouse.service.spec import Service
from keyhouse.settings import read_settings

__all__ = ["mint_token"]


def mint_token(
    service: Service,
    system: str,
    table: Mapping[str, Any],
    data: Path,
    tenant: str,
    *,
    scopes: Sequence[str] | None,
    seconds: float,
) -> str:
    """Return a token for `tenant`; None for `scopes` means those that the settings give a token
    without any.

    UsageError if the service has no tokens, signs none here, or has no such scope.
    """
    known = [*service.scopes, *service.operator_scopes]
    if unknown := [scope for scope in scopes or () if scope not in known]:
        raise UsageError(
            "Unknown scope: no route asks for it.", scope=unknown[0], **nearest(unknown[0], known)
        )
    settings = read_settings(service.settings, table, table=system)
    if not isinstance(settings, JwtSettings):
        raise UsageError("This system has no tokens.", system=system)
    return mint(
        settings,
        data,
        tenant,
        system=system,
        scopes=scopes,
        seconds=seconds,
        tenant_pattern=service.tenant_pattern,
    )
