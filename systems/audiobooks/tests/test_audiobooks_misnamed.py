"""Hostile content below every name that a scan reads: a file's reader is chosen by its name and by
its content, which need not agree. A format that is added is attacked without a line here."""

import itertools
import os
from pathlib import Path

import httpx
import pytest

from keyhouse_audiobooks.files.audio_tags import AUDIO_EXTENSIONS, UNREAD_EXTENSIONS
from systems.audiobooks.tests.support.service import LibraryService
from systems.audiobooks.tests.test_audiobooks_bombs import BOMBS, undisturbed
from systems.audiobooks.tests.test_audiobooks_scan import scan
from tests.sizes import size

pytestmark = pytest.mark.parametrize("service", ["sqlite"], indirect=True)

BOMBS_EACH = size(2, len(BOMBS), len(BOMBS))


@pytest.mark.long
@pytest.mark.soak
def test_a_bomb_below_any_name_is_one_broken_file(
    service: LibraryService, admin: httpx.Client, tmp_path: Path
) -> None:
    """Each bomb had the name of its format, and seven names had none."""
    written = {}
    for name, (extension, write) in BOMBS.items():
        written[name] = tmp_path / f"{name}.{extension}"
        write(written[name])
    turns = itertools.cycle(written)
    for extension in sorted(AUDIO_EXTENSIONS | UNREAD_EXTENSIONS):
        for name in itertools.islice(turns, BOMBS_EACH):
            path = service.roots[0] / f"{name} {extension}" / f"1.{extension}"
            path.parent.mkdir()
            os.link(written[name], path)
    with undisturbed(service):
        lines = scan(admin)
    count = BOMBS_EACH * len(AUDIO_EXTENSIONS)
    assert f"Scanned {count} files" in lines[-1], lines
