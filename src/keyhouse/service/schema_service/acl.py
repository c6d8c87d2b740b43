"""Permissions for nats-server that isolate the spaces of a served schema.

A user of a space publishes to the operations of its space, and subscribes to its own inbox
(`_INBOX_<space>`, which its client must be configured to use) and its own changes.
"""

import re
from collections.abc import Sequence
from typing import Final

from keyhouse.errors import KeyFieldError, UsageError
from keyhouse.nats.endpoint import partition_of
from keyhouse.schema import Schema
from keyhouse.service.nats_acl import CONTROL, NatsUser, password
from keyhouse.service.schema_service.subjects import changes_prefix, subject_prefix

__all__ = ["space_users"]

SERVICE: Final = "keyhouse"
"""The user name of the service."""

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
    prefix, changes = subject_prefix(schema.name), changes_prefix(schema.name)
    each = [
        NatsUser(
            space,
            password(space, {}),
            [f"{prefix}.{space}.*", f"{prefix}.{space}.*.{partition_of(space)}"],
            [f"_INBOX_{space}.>", f"{changes}.{space}.>"],
            f"_INBOX_{space}",
        )
        for space in dict.fromkeys(spaces)
    ]
    publish = ["_INBOX.>", CONTROL, *(f"{user.inbox_prefix}.>" for user in each), f"{changes}.>"]
    subscribe = [f"{prefix}.>", "$SRV.>", "_INBOX.>", CONTROL]
    return [NatsUser(SERVICE, password(SERVICE, {}), publish, subscribe, "_INBOX"), *each]
