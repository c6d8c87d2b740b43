"""The first depth of isolation: permissions for nats-server, so that each plugin can use only its own subjects and inbox.

A plugin publishes to its own operations, and hears its own inbox (`_INBOX_<plugin>`, which its client must be told to use)
and its own changes. It can't ask as another, hear what others ask, nor read others' answers. The service may do what it
needs, and no more.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from keyhouse.errors import KeyFieldError
from keyhouse.systems.rosey.errors import PluginNameError
from keyhouse.systems.rosey.schema import SCHEMAS
from keyhouse.systems.rosey.settings import Settings

__all__ = ["SERVICE", "User", "authorization", "users"]

SERVICE: Final = "keyhouse"
"""The user that the service connects as."""


class User(msgspec.Struct, frozen=True):
    user: str
    password: str
    publish: list[str]
    subscribe: list[str]
    inbox_prefix: str


def users(
    plugins: Sequence[str],
    settings: Settings | None = None,
    passwords: Mapping[str, str] | None = None,
) -> list[User]:
    """The service, and each plugin. Passwords that are not given are drawn."""
    settings, given = settings or Settings(), passwords or {}
    for plugin in plugins:
        try:
            SCHEMAS[0].space.bound(plugin)
        except KeyFieldError:
            raise PluginNameError(
                "A plugin's name is 1 to 100 of a-z, 0-9, _ and -.", plugin=plugin
            ) from None
        if plugin == SERVICE:
            raise PluginNameError(
                "That name is the service's own user: a plugin can't have it here.", plugin=plugin
            )
    each = [_plugin(plugin, settings, given) for plugin in dict.fromkeys(plugins)]
    return [_service(settings, given, [f"{plugin.inbox_prefix}.>" for plugin in each]), *each]


def authorization(found: Sequence[User]) -> str:
    """The `authorization` block of a nats-server's configuration."""
    return "authorization {\n  users = [\n" + "".join(map(_block, found)) + "  ]\n}\n"


def _service(settings: Settings, given: Mapping[str, str], inboxes: list[str]) -> User:
    hears = [*(f"{prefix}.>" for prefix in settings.prefixes), "$SRV.>", "_INBOX.>"]
    says = ["_INBOX.>", *inboxes, f"{settings.changes_prefix}.>"]
    return User(SERVICE, _password(SERVICE, given), says, hears, "_INBOX")


def _plugin(plugin: str, settings: Settings, given: Mapping[str, str]) -> User:
    inbox = f"_INBOX_{plugin}"
    says = [f"{prefix}.{plugin}.*" for prefix in settings.prefixes]
    hears = [f"{inbox}.>", f"{settings.changes_prefix}.{plugin}.>"]
    return User(plugin, _password(plugin, given), says, hears, inbox)


def _password(user: str, given: Mapping[str, str]) -> str:
    return given.get(user) or secrets.token_urlsafe(24)


def _block(user: User) -> str:
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
