"""The first depth of isolation: permissions for nats-server, so that each plugin can use only its own subjects and inbox.

A plugin publishes to its own operations, and hears its own inbox (`_INBOX_<plugin>`, which its client must be told to use)
and its own changes. It can't ask as another, hear what others ask, nor read others' answers. The service may do what it needs,
and no more.
"""

import secrets
from collections.abc import Sequence

from keyhouse.errors import KeyFieldError
from keyhouse.systems.rosey.errors import PluginNameError
from keyhouse.systems.rosey.schema import SCHEMAS
from keyhouse.systems.rosey.settings import Settings

__all__ = ["authorization"]

SERVICE = "keyhouse"


def authorization(plugins: Sequence[str], settings: Settings | None = None, passwords: dict[str, str] | None = None) -> str:
    """The `authorization` block of a nats-server's configuration. Passwords that are not given are drawn."""
    settings = settings or Settings()
    given = passwords or {}
    for plugin in plugins:
        try:
            SCHEMAS[0].space.bound(plugin)
        except KeyFieldError:
            raise PluginNameError("A plugin's name is 1 to 100 of a-z, 0-9, _ and -.", plugin=plugin) from None
    users = [_service(settings, given), *(_plugin(plugin, settings, given) for plugin in dict.fromkeys(plugins))]
    return "authorization {\n  users = [\n" + "\n".join(users) + "\n  ]\n}\n"


def _service(settings: Settings, given: dict[str, str]) -> str:
    hears = [f"{prefix}.>" for prefix in settings.prefixes] + ["$SRV.>", "_INBOX.>"]
    says = ["_INBOX.>", "_INBOX_*.>", f"{settings.changes_prefix}.>"]
    return _user(SERVICE, given, says, hears, "the service")


def _plugin(plugin: str, settings: Settings, given: dict[str, str]) -> str:
    says = [f"{prefix}.{plugin}.*" for prefix in settings.prefixes]
    inbox = f"_INBOX_{plugin}.>"
    return _user(plugin, given, says, [inbox, f"{settings.changes_prefix}.{plugin}.>"], f"inbox_prefix: _INBOX_{plugin}")


def _user(name: str, given: dict[str, str], says: list[str], hears: list[str], about: str) -> str:
    password = given.get(name) or secrets.token_urlsafe(24)
    return f"""    {{ # {about}
      user: {_quoted(name)}, password: {_quoted(password)}
      permissions: {{
        publish: {{ allow: [{", ".join(map(_quoted, says))}] }}
        subscribe: {{ allow: [{", ".join(map(_quoted, hears))}] }}
      }}
    }}"""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
