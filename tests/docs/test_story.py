"""The tour in docs/guides/cli-tour.md: every command runs and prints the output shown."""

import os
import re
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from keyhouse.testing.servers.postgres import postgres_server
from tests.docs.pages import DOCS
from tests.support.program import SOURCE, write_program

SERVER = "postgresql://keyhouse@localhost/clips"


def blocks() -> list[tuple[str, str]]:
    """Return each block with its language; `sh watch` and `text watch` are the second terminal."""
    page = (DOCS / "guides" / "cli-tour.md").read_text()
    return re.findall(r"^```([^\n]*)\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def normalised(text: str) -> str:
    """Replace times and digests, which differ from run to run."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "<time>", text)
    return re.sub(r"\b[0-9a-f]{16,64}\b", "<digest>", text)


def script(shown: list[tuple[str, str]]) -> str:
    """Return one shell script: the blocks in order, the output of each in its own file."""
    lines = []
    for number, (language, text) in enumerate(shown):
        if language == "sh":
            lines.append("{\n" + text + "} > " + f"out.{number} 2>&1")
        elif language == "sh watch":
            lines.append("{\n" + text + "} > " + f"out.{number} 2>&1 &")
            lines.append(f"until grep -q Watching out.{number}; do :; done")
    return "\n".join([*lines, "wait"])


@pytest.mark.long
def test_the_tour_prints_the_output_it_shows(tmp_path: Path) -> None:
    url = postgres_server().url
    program = write_program(tmp_path / "bin")
    folders = [str(program.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = os.environ | {
        "PATH": os.pathsep.join(folders),
        "PYTHONPATH": str(SOURCE),
        "COLUMNS": "100",
    }
    shown = blocks()
    subprocess.run(
        [
            "bash",
            "-c",
            script(shown).replace(SERVER, quote(f"{url}{'&' if '?' in url else '?'}layout=story")),
        ],
        cwd=tmp_path,
        env=environment,
        timeout=300,
        check=True,
    )
    ran = ""
    watched = ""
    for number, (language, text) in enumerate(shown):
        if language == "sh":
            ran = (tmp_path / f"out.{number}").read_text()
        elif language == "sh watch":
            watched = (tmp_path / f"out.{number}").read_text()
        else:
            assert normalised(watched if language == "text watch" else ran) == normalised(text)


def test_the_tour_uses_the_commands_of_an_operator() -> None:
    commands = "".join(text for language, text in blocks() if language.startswith("sh"))
    for command in (
        "put",
        "watch",
        "explain",
        "verify",
        "verify $BOARD --repair",
        "backup",
        "restore",
        "move",
    ):
        assert f"keyhouse {command} " in commands or f"keyhouse {command}\n" in commands
