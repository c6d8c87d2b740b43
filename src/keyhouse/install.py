"""The command that installs an extra: from where this Keyhouse was installed.

pip notes the folder, archive or repository of a package in `direct_url.json` (PEP 610). A package
from an index has no such file, and its name is enough.
"""

from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

__all__ = ["install_line", "line_of"]

_SOURCE: Final = Path(__file__).parents[2]
"""The clone, if the package runs from one without being installed."""


def install_line(extra: str) -> str:
    """Return the command, for messages: `pip install '/srv/keyhouse[rocksdb]'`."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow, and seldom needed

    try:
        noted = distribution("keyhouse").read_text("direct_url.json")
    except PackageNotFoundError:
        is_clone = (_SOURCE / "pyproject.toml").is_file()
        noted = msgspec.json.encode({"url": _SOURCE.as_uri()}).decode() if is_clone else None
    return line_of(extra, noted)


def line_of(extra: str, direct_url: str | None) -> str:
    """Return the command for a package with this `direct_url.json`."""
    noted: dict[str, Any] = msgspec.json.decode(direct_url) if direct_url else {}
    url = urlsplit(str(noted.get("url", "")))
    if vcs := noted.get("vcs_info"):
        return f"pip install 'keyhouse[{extra}] @ {vcs['vcs']}+{url.geturl()}'"
    if url.scheme == "file":
        editable = "-e " if noted.get("dir_info", {}).get("editable") else ""
        return f"pip install {editable}'{unquote(url.path)}[{extra}]'"
    if url.scheme:
        return f"pip install 'keyhouse[{extra}] @ {url.geturl()}'"
    return f"pip install 'keyhouse[{extra}]'"
