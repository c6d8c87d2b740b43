"""Permissions for nats-server as its configuration writes them: the first layer of isolation.

A tenant publishes to its own operations, and subscribes to its own inbox (`_INBOX_<tenant>`, which
its client must be configured to use) and its own changes. It cannot act as another tenant, nor see
others' requests and replies. The service has the permissions it needs, and no more.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from keyhouse.nats.endpoint import partition_of

__all__ = ["SERVICE", "NatsUser", "authorization", "tenant_users"]

SERVICE: Final = "keyhouse"
"""The user name of the service: no tenant may have it."""

_CONTROL: Final = "keyhouse.control.>"
"""Subjects of `watch_peers`, for the processes of a service."""


class NatsUser(msgspec.Struct, frozen=True):
    user: str
    password: str
    publish: list[str]
    subscribe: list[str]
    inbox_prefix: str


def tenant_users(
    tenants: Sequence[str],
    prefixes: Sequence[str],
    changes_prefix: str,
    passwords: Mapping[str, str] | None = None,
) -> list[NatsUser]:
    """Return the users: the service, and each tenant. Passwords that are not given are
    generated."""
    given = passwords or {}
    users = []
    for tenant in dict.fromkeys(tenants):
        publish = [
            f"{prefix}.{tenant}.{operation}"
            for prefix in prefixes
            for operation in ("*", f"*.{partition_of(tenant)}")
        ]
        inbox = f"_INBOX_{tenant}"
        subscribe = [f"{inbox}.>", f"{changes_prefix}.{tenant}.>"]
        users.append(NatsUser(tenant, _password(tenant, given), publish, subscribe, inbox))
    inboxes = [f"{user.inbox_prefix}.>" for user in users]
    publish = ["_INBOX.>", _CONTROL, *inboxes, f"{changes_prefix}.>"]
    subscribe = [*(f"{prefix}.>" for prefix in prefixes), "$SRV.>", "_INBOX.>", _CONTROL]
    service = NatsUser(SERVICE, _password(SERVICE, given), publish, subscribe, "_INBOX")
    return [service, *users]


def authorization(users: Sequence[NatsUser]) -> str:
    """Return the `authorization` block of a nats-server configuration."""
    return "authorization {\n  users = [\n" + "".join(map(_block, users)) + "  ]\n}\n"


def _password(user: str, given: Mapping[str, str]) -> str:
    return given.get(user) or secrets.token_urlsafe(24)


def _block(user: NatsUser) -> str:
    return f"""    {{ # inbox prefix: {user.inbox_prefix}
      user: {_quoted(user.user)}, password: {_quoted(user.password)}
      permissions: {{
        publish: {{ allow: [{", ".join(map(_quoted, user.publish))}] }}
        subscribe: {{ allow: [{", ".join(map(_quoted, user.subscribe))}] }}
      }}
    }}
"""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
