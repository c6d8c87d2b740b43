"""Templates, styles and scripts wrap like the code, so that a change of them can be read."""

import pytest

from tests.project.test_documentation import ROOT, tracked

COLUMNS_MAX = 100


@pytest.mark.parametrize("pattern", ["*.html", "*.css", "*.js"])
def test_page_files_wrap(pattern: str) -> None:
    files = [path for path in tracked(pattern) if "vendor" not in path.parts]
    assert files
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]
    assert found == []
