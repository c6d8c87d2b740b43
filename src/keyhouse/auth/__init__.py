"""Authentication: callers, tokens (JWT) and the keys that verify them.

It knows no route and no record.
"""

from keyhouse.auth.caller import Authenticator, Caller, HeaderPairs
from keyhouse.auth.jwt_auth import JwtAuth, jwt_auth
from keyhouse.auth.secret import load_or_create_secret, mint, secret_path
from keyhouse.auth.session_auth import (
    HASHED_KEY,
    ID_SECRET,
    AnyAuth,
    NewToken,
    SessionAuth,
    StoredSession,
    TokenForm,
    new_token,
    secret_hash,
)
from keyhouse.auth.settings import TENANT_PATTERN, JwtSettings

__all__ = [
    "HASHED_KEY",
    "ID_SECRET",
    "TENANT_PATTERN",
    "AnyAuth",
    "Authenticator",
    "Caller",
    "HeaderPairs",
    "JwtAuth",
    "JwtSettings",
    "NewToken",
    "SessionAuth",
    "StoredSession",
    "TokenForm",
    "jwt_auth",
    "load_or_create_secret",
    "mint",
    "new_token",
    "secret_hash",
    "secret_path",
]
