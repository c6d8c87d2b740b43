"""The story of docs/operations.md, run as it stands there: on SQLite, on RocksDB, and on a real PostgreSQL."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS, ROOT
from tests.engines.openers import postgres_schema

STORY = (DOCS / "operations.md").read_text().split("## A day with it\n", 1)[1].split("\n## ", 1)[0]


def test_the_story_is_true(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "keyhouse"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m keyhouse.cli "$@"\n')
    program.chmod(0o755)
    path = os.pathsep.join([str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {
        "PATH": path,
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": "200",
        "POSTGRES": asyncio.run(postgres_schema()),
    }
    (tmp_path / "day").mkdir()
    steps = re.findall(r"^```sh\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", STORY, re.MULTILINE | re.DOTALL)
    assert len(steps) >= 7
    script = "set -eu\n" + "".join(f"{commands}\necho '== {at}'\n" for at, (commands, _) in enumerate(steps))
    ran = subprocess.run(
        ["/bin/sh", "-c", script],
        cwd=tmp_path / "day",
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    shown = re.split(r"^== \d+\n", ran.stdout, flags=re.MULTILINE)
    for (commands, expected), output in zip(steps, shown, strict=False):
        for line in expected.splitlines():
            pattern = ".*".join(map(re.escape, line.strip().split("…")))
            assert re.search(pattern, output), f"{line!r} is not what this shows:\n{commands}\n{output}"
