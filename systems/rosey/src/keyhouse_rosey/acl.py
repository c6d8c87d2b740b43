"""Permissions for nats-server that isolate plugins."""

from collections.abc import Mapping, Sequence

from keyhouse.errors import KeyFieldError
from keyhouse.service.nats_acl import SERVICE, NatsUser, tenant_users
from keyhouse_rosey.errors import PluginNameError, invalid_name
from keyhouse_rosey.schema import SCHEMAS
from keyhouse_rosey.settings import RoseySettings

__all__ = ["users"]


def users(
    plugins: Sequence[str],
    settings: RoseySettings | None = None,
    passwords: Mapping[str, str] | None = None,
) -> list[NatsUser]:
    """Return the users: the service, and each plugin. Passwords that are not given are
    generated."""
    for plugin in plugins:
        try:
            SCHEMAS[0].space.bound(plugin)
        except KeyFieldError:
            raise invalid_name(plugin) from None
        if plugin == SERVICE:
            raise PluginNameError(
                "That name is reserved for the service's own user.", plugin=plugin
            )
    settings = settings or RoseySettings()
    return tenant_users(plugins, settings.prefixes, settings.changes_prefix, passwords)
