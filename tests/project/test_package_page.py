"""The page of the package: made from the README, with no link that leads nowhere."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hatch_build import package_page
from tests.project.test_documentation import ROOT

README = (ROOT / "README.md").read_text()
RELATIVE = re.compile(r"\]\((?![a-z]+:|#)")


def test_relative_links_become_links_to_the_repository() -> None:
    page = package_page(README, "https://example.org/keyhouse/")
    assert not RELATIVE.search(page)
    assert "(https://example.org/keyhouse/blob/HEAD/docs/tutorial.md)" in page
    assert "(https://example.org/keyhouse/raw/HEAD/docs/screens/explain.svg)" in page


def test_without_a_repository_the_text_of_links_remains() -> None:
    page = package_page("![a](b.svg)\n\nSee [the docs](docs/a.md) or [it](https://x.org).\n", None)
    assert page == "See the docs or [it](https://x.org).\n"
    assert not RELATIVE.search(package_page(README, None))


@pytest.mark.long
def test_a_wheel_has_the_page_and_the_classifiers(tmp_path: Path) -> None:
    command = ["-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = archive.read(name).decode()
    assert "Programming Language :: Python :: 3.13" in metadata
    assert "# Keyhouse" in metadata and not RELATIVE.search(metadata)
