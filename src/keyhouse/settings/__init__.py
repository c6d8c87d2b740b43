"""Settings: typed Structs, read from `keyhouse.toml`, the environment and the command line.

Imports no server, so that the command line can read settings without loading one.
"""

from keyhouse.settings.parser import read_settings, setting

__all__ = ["read_settings", "setting"]
