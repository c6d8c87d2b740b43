"""Requests and replies of `auth/`, `users` and `tenants`."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from keyhouse.normalization import CONTROLS, account_name
from keyhouse_audiobooks.limits import USERNAME_CHARS_MAX
from keyhouse_audiobooks.messages import Name

Username = Annotated[
    str,
    Meta(min_length=1, max_length=USERNAME_CHARS_MAX, pattern=rf"^[^\s{CONTROLS}][^{CONTROLS}]*$"),
]
LoginName = Annotated[str, Meta(max_length=USERNAME_CHARS_MAX)]
"""A name that no user can have is wrong (401) unless it is longer than any."""
RoleName = Annotated[str, Meta(max_length=64)]
LibraryName = Annotated[str, Meta(max_length=64)]
Password = Annotated[str, Meta(min_length=8, max_length=1_000)]
AnyPassword = Annotated[str, Meta(max_length=1_000)]
Email = Annotated[str, Meta(max_length=254, pattern=r"^([^@\s]+@[^@\s]+)?$(?!\n)")]


class Agent(Struct):
    """`tenant`: the library, where a service has several; otherwise it is ignored."""

    user_agent: str = msgspec.field(name="User-Agent", default="")
    cookie: str = ""
    tenant: str = msgspec.field(name="X-Tenant", default="")


class LibraryStatus(Struct):
    has_users: bool
    auth_enabled: bool
    requires_auth: bool
    bootstrap_ready: bool


class MessageReply(Struct):
    message: str


class NewUser(Struct, forbid_unknown_fields=True):
    username: Username
    password: Password
    email: Email | None = None

    def __post_init__(self) -> None:
        self.username = account_name(self.username, USERNAME_CHARS_MAX)


class ShownUser(Struct):
    id: str
    username: str
    email: str | None
    roles: list[str]
    status: Literal["active", "disabled"]
    created_at: str


class SetupBody(NewUser):
    """`tenant`: the library, where a service has several."""

    tenant: LibraryName | None = None


class SetupReply(Struct):
    message: str
    user: ShownUser


class LoginBody(Struct, forbid_unknown_fields=True):
    username: LoginName
    password: AnyPassword
    remember_me: bool = False
    tenant: LibraryName | None = None


class LoginSession(Struct):
    id: str
    user_id: str
    expires_at: str


class LoginReply(Struct):
    user: ShownUser
    session: LoginSession
    token: str


class ProfileBody(Struct, forbid_unknown_fields=True):
    email: Email | None


class UserProfile(ShownUser):
    """The signed-in user, also in `user`, with its permissions."""

    permissions: list[str]
    user: ShownUser


class PasswordBody(Struct, forbid_unknown_fields=True):
    current_password: AnyPassword
    new_password: Password


class ShownSession(Struct):
    """`current`: it is that of the request."""

    id: str
    user_id: str
    created_at: str
    expires_at: str
    ip_address: str
    user_agent: str
    current: bool


class ApiKeyBody(Struct, forbid_unknown_fields=True):
    name: Name


class NewApiKey(Struct):
    """`key` is the token of the key, with its secret."""

    id: str
    name: str
    key: str
    created_at: str


class UserBody(NewUser):
    roles: list[RoleName] = msgspec.field(default_factory=lambda: ["viewer"])


class UserPatch(Struct, forbid_unknown_fields=True):
    roles: list[RoleName] | UnsetType = UNSET
    status: Literal["active", "disabled"] | UnsetType = UNSET
    email: Email | UnsetType | None = UNSET
    password: Password | UnsetType = UNSET


class TenantBody(Struct, forbid_unknown_fields=True):
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$(?!\n)")]


class TenantName(Struct):
    name: str
