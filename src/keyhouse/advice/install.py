"""The command that installs an extra: from where this Keyhouse was installed.

pip notes the folder, archive or repository of a package in `direct_url.json` (PEP 610). A package
from an index has no such file, and its name is enough.
"""

from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec

__all__ = ["install_line", "line_of", "systems_line"]

_SOURCE: Final = Path(__file__).parents[3]
"""The clone, if the package runs from one without being installed."""


def install_line(extra: str) -> str:
    """Return the command, for messages: `pip install '/srv/keyhouse[rocksdb]'`."""
    return line_of(extra, _direct_url())


def systems_line(name: str = "") -> str:
    """Return the command that installs the systems, or the one of that name: from the clone, where
    there is one. Empty if there is no such system to install."""
    folder = urlsplit(msgspec.json.decode(_direct_url() or "{}").get("url", ""))
    systems = Path(unquote(folder.path)) / "systems"
    if folder.scheme != "file" or not systems.is_dir():
        return "" if name else install_line("systems")
    if not name:
        return f"pip install '{systems}/'*/"
    return f"pip install '{systems / name}'" if name in _folders(systems) else ""


def _folders(systems: Path) -> list[str]:
    return [each.parent.name for each in systems.glob("*/pyproject.toml")]


def _direct_url() -> str | None:
    from importlib.metadata import PackageNotFoundError, distribution  # slow, and seldom needed

    try:
        return distribution("keyhouse").read_text("direct_url.json")
    except PackageNotFoundError:
        is_clone = (_SOURCE / "pyproject.toml").is_file()
        return msgspec.json.encode({"url": _SOURCE.as_uri()}).decode() if is_clone else None


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
