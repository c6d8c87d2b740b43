"""Permissions for nats-server as its configuration writes them."""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

__all__ = ["CONTROL", "NatsUser", "authorization", "password"]

CONTROL: Final = "keyhouse.control.>"
"""Subjects of `watch_peers`, for the processes of a service."""


class NatsUser(msgspec.Struct, frozen=True):
    user: str
    password: str
    publish: list[str]
    subscribe: list[str]
    inbox_prefix: str


def authorization(users: Sequence[NatsUser]) -> str:
    """Return the `authorization` block of a nats-server configuration."""
    return "authorization {\n  users = [\n" + "".join(map(_block, users)) + "  ]\n}\n"


def password(user: str, given: Mapping[str, str]) -> str:
    """Return the password given for a user, or a new one."""
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
