"""What only plugin storage can refuse."""

from keyhouse.errors import CallerError

__all__ = ["PluginNameError", "SubjectError"]


class SubjectError(CallerError):
    """Not `<prefix>.<plugin>.<operation>`, or no such operation; or a subject that changes may not be sent to."""

    code = "INVALID_SUBJECT"


class PluginNameError(CallerError):
    code = "INVALID_PLUGIN_NAME"
