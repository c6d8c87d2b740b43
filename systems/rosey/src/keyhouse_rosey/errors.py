"""Errors that only plugin storage has."""

from keyhouse.errors import CallerError

__all__ = ["PluginNameError", "invalid_name"]


class PluginNameError(CallerError):
    code = "INVALID_PLUGIN_NAME"


def invalid_name(plugin: object) -> PluginNameError:
    return PluginNameError("A plugin's name is 1 to 100 of a-z, 0-9, _ and -.", plugin=plugin)
