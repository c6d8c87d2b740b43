"""Users, sessions, preferences, roles and security: keys, in the document's order."""

from typing import Any

from keyhouse.keys import normal
from keyhouse.schema import Index, Owner, Record, Unique, at_field
from keyhouse_audiobooks.records import (
    VERSION,
    Argon2Params,
    RolePermissions,
    Session,
    Setup,
    User,
    UserLimits,
    UserSecrets,
)

__all__ = [
    "API_KEY_OWNER",
    "ARGON2_PARAMS",
    "PREFERENCE",
    "ROLE_PERMISSIONS",
    "SEALED_USER",
    "SESSION",
    "SESSIONS_OF_USER",
    "SETUP",
    "USER",
    "USER_BY_EMAIL",
    "USER_BY_NAME",
    "USER_LIMITS",
    "USER_SECRETS",
]

# User

USER_BY_NAME = Unique("idx:user:username:{username:norm}", value="id")
USER_BY_EMAIL = Unique("idx:user:email:{email:norm}", value="id")
USER = Record(
    User,
    "u:{id:ulid}",
    USER_BY_NAME,
    USER_BY_EMAIL,
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
    private=("password_hash",),
)
SEALED_USER = Record(
    User,
    "u:{id:ulid}",
    Unique("idx:user:username:{username:norm}", value="id"),
    Unique(
        "idx:user:email:{email:hmac}",
        value="id",
        fields={"email": lambda user: normal(user.email) if user.email else None},
    ),
    version=VERSION,
    unknown="keep",
    created="created_at",
    updated="updated_at",
    private=("password_hash",),
    sealed=("email",),
)
"""The declaration of a user where the service has a key ring."""
API_KEY_OWNER = Index(
    "idx:apikey:{key_id:ulid}:{user_id:ulid}",
    each={"key_id": lambda secrets: [key.id for key in secrets.api_keys or ()]},
)
USER_SECRETS = Record(
    UserSecrets,
    "ua:{user_id:ulid}",
    API_KEY_OWNER,
    name="user_secrets",
    version=VERSION,
    unknown="keep",
    private=("hashes",),
    belongs_to=Owner(USER),
)

USER_LIMITS = Record(
    UserLimits,
    "ul:{user_id:ulid}",
    name="user_limits",
    doc="Written with each thing of a limited number that a user adds.",
    version=VERSION,
    unknown="keep",
    updated="updated_at",
    belongs_to=Owner(USER),
)

# Session

SESSIONS_OF_USER = Index("idx:sess:user:{user_id:ulid}:{id:ulid}")
SESSION = Record(
    Session,
    "sess:{id:ulid}",
    SESSIONS_OF_USER,
    version=VERSION,
    unknown="keep",
    created="created_at",
    timestamps=("expires_at",),
    private=("token_hash",),
    expiry=at_field("expires_at"),
    belongs_to=Owner(USER, by=SESSIONS_OF_USER),
)

# User preferences, and permissions of roles

PREFERENCE: Record[Any] = Record(
    Any,
    "pref:{user_id:ulid}:{key}",
    name="preference",
    doc="Any JSON, by the user's key.",
    belongs_to=Owner(USER),
)
ROLE_PERMISSIONS = Record(
    RolePermissions, "authz:{role}", name="role_permissions", version=VERSION, unknown="keep"
)


# Security

ARGON2_PARAMS = Record(
    Argon2Params, "meta:auth:argon2_params", name="argon2_params", version=VERSION, unknown="keep"
)
SETUP = Record(
    Setup,
    "meta:auth:setup",
    name="setup",
    doc="The first admin: the commit that creates it expects this row absent.",
    version=VERSION,
    unknown="keep",
    created="created_at",
)
