"""The guide's tour is run, command by command, against the program; it prints what it shows."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from keyhouse_audiobooks.files.demo import write_demo
from tests.serve.support.serve_process import serving

GUIDE = Path(__file__).parents[1] / "README.md"
MARK = "=== the next block ==="


def section(title: str) -> str:
    return GUIDE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def steps() -> list[tuple[str, str]]:
    """Return each block of commands with the output that the guide shows."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", section("Tour"), re.MULTILINE | re.DOTALL)
    assert found[0][1].startswith("$ keyhouse audiobooks demo books")
    return [
        (text, found[number + 1][1])
        for number, (language, text) in enumerate(found)
        if language == "sh"
    ]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_the_tour_prints_what_it_shows(tmp_path: Path) -> None:
    write_demo(tmp_path / "books")
    roots = {"KEYHOUSE_AUDIOBOOKS_ROOTS": str(tmp_path / "books")}
    with serving(tmp_path, "audiobooks", "--http", "127.0.0.1:0", **roots) as served:
        script = f"\necho; echo '{MARK}'\n".join(text for text, _ in steps())
        ran = subprocess.run(
            ["bash", "-eu", "-c", script.replace("http://127.0.0.1:8080", served.http)],
            cwd=tmp_path,
            env=os.environ | {"no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        printed = [part.strip() for part in ran.stdout.split(MARK)]
        assert printed == [expected.strip() for _, expected in steps()]
        python = re.search(
            r"^```python\n(.*?)^```", section("From Python"), re.MULTILINE | re.DOTALL
        )
        assert python is not None
        names: dict[str, object] = {}
        exec(python[1], names)
        found = names["titles"](f"{served.http}/audiobooks", "ann", "correct horse")  # type: ignore[operator]  # the guide's function
        assert len(found) == 6 and "The Fog" in found
