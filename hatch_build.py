"""Makes the page of the package from README.md when a wheel or an archive is built.

A package page has no folder, so relative links would lead nowhere. With the address of the
repository in KEYHOUSE_REPOSITORY they become links to it; without, their text remains, and pictures
are left out.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_PICTURE = re.compile(r"^!\[[^]]*\]\((?![a-z]+:)[^)]+\)\n\n?", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\((?![a-z]+:|#)([^)]+)\)")


def package_page(readme: str, repository: str | None) -> str:
    """Return the README without relative links."""
    if repository is None:
        return _LINK.sub(r"\1", _PICTURE.sub("", readme))
    base = repository.rstrip("/")
    pictures = readme.replace("](docs/screens/", f"]({base}/raw/HEAD/docs/screens/")
    return _LINK.sub(rf"[\1]({base}/blob/HEAD/\2)", pictures)


class PackagePage(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        page = package_page(text, os.environ.get("KEYHOUSE_REPOSITORY"))
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
