"""Who asks, and how much they may: tokens, scopes, rate limits and quotas. The same for every face and every system.

It knows no route and no record.
"""

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.auth.jwt_auth import TENANT_PATTERN, JwtAuth, jwt_auth
from keyhouse.auth.mint import mint
from keyhouse.auth.settings import JwtSettings

__all__ = [
    "TENANT_PATTERN",
    "Authenticator",
    "Caller",
    "HeaderPairs",
    "JwtAuth",
    "JwtSettings",
    "jwt_auth",
    "mint",
]
