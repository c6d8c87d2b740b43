"""Authentication: callers, tokens (JWT) and the keys that verify them.

It knows no route and no record.
"""

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.auth.jwt_auth import JwtAuth, jwt_auth
from keyhouse.auth.secret import mint
from keyhouse.auth.settings import TENANT_PATTERN, JwtSettings

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
