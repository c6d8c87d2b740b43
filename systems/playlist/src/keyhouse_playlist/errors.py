"""Errors of the playlist service, and the form of all its errors.

Codes are lower case, as the programs around this service expect them; those of the HTTP layer and
the store are the same words in lower case.
"""

from keyhouse.errors import (
    AccessError,
    ConflictError,
    EngineError,
    KeyhouseError,
    NewerError,
    ScopeError,
    UnreadableError,
    UsageError,
)
from keyhouse.http import NESTED, ErrorFormat

__all__ = [
    "ERROR_FORMAT",
    "AddressBlockedError",
    "ApplyRunningError",
    "CatalogFullError",
    "CatalogSourceError",
    "ForeignRowError",
    "IntentError",
    "NameTakenError",
    "NewerDocumentError",
    "NewerRowError",
    "NoCurrentItemError",
    "OtpKeyError",
    "PatternError",
    "PlaylistsFullError",
    "RefreshRunningError",
    "RobotUnavailableError",
    "RoleError",
]


class AddressBlockedError(AccessError):
    """The client's address is blocked."""

    code = "ip_blocked"


class IntentError(ConflictError):
    """The address was not offered to block itself, or too long ago."""

    code = "no_block_intent"


class RoleError(ScopeError):
    """The user's role does not allow this."""

    code = "forbidden"


class NewerDocumentError(ConflictError):
    """Another program wrote the document in a newer version."""

    code = "newer_version"


class ForeignRowError(UnreadableError):
    """Another program left a row that does not decode where this one has to read it."""

    status = 409
    code = "unreadable_row"


class NewerRowError(NewerError):
    """A newer program wrote a row that this one has to change."""

    status = 409
    code = "newer_version"


class NameTakenError(ConflictError):
    """Another playlist of the namespace has this name."""

    code = "name_taken"


class PlaylistsFullError(EngineError):
    """The namespace has as many playlists as it can have."""

    status = 507
    code = "playlists_full"


class OtpKeyError(EngineError):
    """A process with another `otp_key` made the code."""

    code = "otp_key_mismatch"


class PatternError(UsageError):
    """An interleave pattern, or the sources of a marathon, are invalid."""

    code = "invalid_pattern"


class NoCurrentItemError(ConflictError):
    """Nothing is playing in the channel."""

    code = "no_current_item"


class RobotUnavailableError(EngineError):
    """The channel's robot does not answer."""

    code = "robot_unavailable"


class ApplyRunningError(ConflictError):
    """A playlist is being pushed to the channel already."""

    code = "apply_running"


class RefreshRunningError(ConflictError):
    """The catalog is being refreshed already."""

    code = "refresh_running"


class CatalogSourceError(UsageError):
    """A catalog's source is invalid or unreachable. The catalog is unchanged."""

    code = "catalog_source"


class CatalogFullError(CatalogSourceError):
    """A catalog's source has too many items."""


def _render(error: KeyhouseError, request_id: str) -> object:
    body = NESTED.render(error, request_id)
    body.error.code = body.error.code.lower()  # type: ignore[attr-defined]  # a NestedError
    details = body.error.details  # type: ignore[attr-defined]
    if "retry_after" in details:
        details["retry_after_seconds"] = details.pop("retry_after")
    return body


ERROR_FORMAT = ErrorFormat(NESTED.name, NESTED.media_type, NESTED.body, _render)  # type: ignore[arg-type]
"""`{"error": {"code", "message", "details"}}`, with codes in lower case."""
