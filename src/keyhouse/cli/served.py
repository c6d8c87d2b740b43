"""Where `keyhouse serve` keeps a system's rows, as the environment and `keyhouse.toml` tell it.

Of its settings only these three are read: a system's own `engine`, the `engine` of all, and `data`. It does so without the
libraries that serving needs, and starts as quickly as any command.
"""

import os
import tomllib
from pathlib import Path
from typing import Any

from keyhouse.cli.target import system_names
from keyhouse.engines.system_urls import file_of, url_of
from keyhouse.errors import UsageError

_FILE = "keyhouse.toml"


def served_url(system: str | None) -> str | None:
    """`None` when nothing is said, or when it is of no system."""
    if system is None or system not in system_names(""):
        return None
    told = _read_file()
    own = os.environ.get(f"KEYHOUSE_{system.upper()}_ENGINE") or _in_table(
        told.get(system), "engine"
    )
    shared = os.environ.get("KEYHOUSE_ENGINE") or _in_table(told, "engine")
    data = os.environ.get("KEYHOUSE_DATA") or _in_table(told, "data")
    if own is not None:
        return url_of(system, own, alone=True)
    if shared is not None:
        return url_of(system, shared, alone=False)
    return None if data is None else file_of(system, Path(data))


def _in_table(table: Any, name: str) -> str | None:
    found = table.get(name) if isinstance(table, dict) else None
    return found if isinstance(found, str) and found else None


def _read_file() -> dict[str, Any]:
    named = os.environ.get("KEYHOUSE_CONFIG")
    path = Path(named or _FILE)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if named is None:
            return {}
        raise UsageError("There is no such file of settings.", file=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(
            "The file of settings can't be read.", file=str(path), reason=str(error)
        ) from None
