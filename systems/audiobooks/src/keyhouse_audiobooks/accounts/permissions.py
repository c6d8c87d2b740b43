"""Permissions, and the roles that have them. The rows `authz:` can change a role; these are the
ones that set-up writes."""

from collections.abc import Mapping
from typing import Final

__all__ = [
    "ADMIN",
    "DELETE",
    "EDIT",
    "EDITOR",
    "MANAGE_SETTINGS",
    "MANAGE_USERS",
    "ORGANIZE",
    "PERMISSIONS",
    "PLAYLISTS",
    "ROLES",
    "SCAN",
    "VIEW",
    "VIEWER",
]

VIEW: Final = "library.view"
EDIT: Final = "library.edit_metadata"
DELETE: Final = "library.delete"
ORGANIZE: Final = "library.organize"
SCAN: Final = "scan.trigger"
MANAGE_INTEGRATIONS: Final = "integrations.manage"
MANAGE_USERS: Final = "users.manage"
MANAGE_SETTINGS: Final = "settings.manage"
PLAYLISTS: Final = "playlists.create"
REQUESTS: Final = "requests.create"
APPROVALS: Final = "requests.approve"
"""MANAGE_INTEGRATIONS, REQUESTS and APPROVALS guard no route: the document lists them, and roles
have them."""

PERMISSIONS: Final = (
    VIEW,
    EDIT,
    DELETE,
    ORGANIZE,
    SCAN,
    MANAGE_INTEGRATIONS,
    MANAGE_USERS,
    MANAGE_SETTINGS,
    PLAYLISTS,
    REQUESTS,
    APPROVALS,
)

ADMIN: Final = "admin"
EDITOR: Final = "editor"
VIEWER: Final = "viewer"

ROLES: Final[Mapping[str, tuple[str, ...]]] = {
    ADMIN: PERMISSIONS,
    EDITOR: tuple(each for each in PERMISSIONS if not each.endswith(".manage")),
    VIEWER: (VIEW, REQUESTS),
}
