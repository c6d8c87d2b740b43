"""Permissions for nats-server that isolate the spaces of a served schema."""

import re
from collections.abc import Sequence
from typing import Final

from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.schema import Schema
from keyhouse.service.nats_acl import SERVICE, NatsUser, tenant_users
from keyhouse.service.schema_service.subjects import changes_prefix, subject_prefix

__all__ = ["space_users"]

_SPACE: Final = re.compile("[A-Za-z0-9_-]{1,64}")


def space_users(schema: Schema, spaces: Sequence[str]) -> list[NatsUser]:
    """Return the users: the service, and one for each space, with new passwords."""
    for space in spaces:
        try:
            schema.space.bound(space)
        except KeyFieldError as error:
            raise UsageError(
                "Invalid name of a space.", space=space, reason=error.sentence
            ) from None
        if not _SPACE.fullmatch(space) or space == SERVICE:
            raise UsageError(
                "A space over NATS is named by letters, digits, _ and -, and not `keyhouse`.",
                space=space,
            )
    return tenant_users(spaces, [subject_prefix(schema.name)], changes_prefix(schema.name))
