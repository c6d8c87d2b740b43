"""Errors that only plugin storage has."""

from keyhouse.errors import CallerError

__all__ = ["PluginNameError"]


class PluginNameError(CallerError):
    """Not 1 to 100 of a-z, 0-9, _ and -."""

    code = "INVALID_PLUGIN_NAME"
