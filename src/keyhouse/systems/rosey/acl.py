"""Permissions for nats-server, the first layer of isolation: each plugin can use only its own
subjects and inbox.

A plugin publishes to its own operations, and subscribes to its own inbox (`_INBOX_<plugin>`, which
its client must be configured to use) and its own changes. It cannot act as another plugin, nor see
others' requests and replies. The service has the permissions it needs, and no more.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from keyhouse.errors import KeyFieldError
from keyhouse.nats.endpoint import partition_of
from keyhouse.service.nats_acl import CONTROL, NatsUser, password
from keyhouse.systems.rosey.errors import PluginNameError
from keyhouse.systems.rosey.schema import SCHEMAS
from keyhouse.systems.rosey.settings import RoseySettings

__all__ = ["SERVICE", "users"]

SERVICE: Final = "keyhouse"
"""The user name of the service."""


def users(
    plugins: Sequence[str],
    settings: RoseySettings | None = None,
    passwords: Mapping[str, str] | None = None,
) -> list[NatsUser]:
    """Return the users: the service, and each plugin. Passwords that are not given are
    generated."""
    settings, given = settings or RoseySettings(), passwords or {}
    for plugin in plugins:
        try:
            SCHEMAS[0].space.bound(plugin)
        except KeyFieldError:
            raise PluginNameError(
                "A plugin's name is 1 to 100 of a-z, 0-9, _ and -.", plugin=plugin
            ) from None
        if plugin == SERVICE:
            raise PluginNameError(
                "That name is reserved for the service's own user.", plugin=plugin
            )
    each = [_plugin(plugin, settings, given) for plugin in dict.fromkeys(plugins)]
    return [_service(settings, given, [f"{plugin.inbox_prefix}.>" for plugin in each]), *each]


def _service(settings: RoseySettings, given: Mapping[str, str], inboxes: list[str]) -> NatsUser:
    subscribe = [*(f"{prefix}.>" for prefix in settings.prefixes), "$SRV.>", "_INBOX.>", CONTROL]
    publish = ["_INBOX.>", CONTROL, *inboxes, f"{settings.changes_prefix}.>"]
    return NatsUser(SERVICE, password(SERVICE, given), publish, subscribe, "_INBOX")


def _plugin(plugin: str, settings: RoseySettings, given: Mapping[str, str]) -> NatsUser:
    inbox = f"_INBOX_{plugin}"
    publish = [
        f"{prefix}.{plugin}.{operation}"
        for prefix in settings.prefixes
        for operation in ("*", f"*.{partition_of(plugin)}")
    ]
    subscribe = [f"{inbox}.>", f"{settings.changes_prefix}.{plugin}.>"]
    return NatsUser(plugin, password(plugin, given), publish, subscribe, inbox)
