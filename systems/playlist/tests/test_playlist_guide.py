"""The guide is run: its commands against the program, and what it lists is complete."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from systems.playlist.tests.support.mediacms import MediaCmsServer, mediacms
from tests.serve.support.serve_process import Serving, environment, serving
from tests.support.polling import wait_until
from tests.support.program import write_program

GUIDE = Path(__file__).parents[1] / "README.md"
TOUR = "From nothing to a pushed playlist"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")


def section(title: str) -> str:
    return GUIDE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def commands(title: str) -> list[str]:
    """The commands of a section's shell blocks, one per line."""
    blocks = re.findall(r"^```sh\n(.*?)^```", section(title), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.strip()]


class Terminal:
    """A shell in the folder in which the guide's reader is."""

    def __init__(self, folder: Path, served: Serving) -> None:
        self.folder = folder
        self.served = served
        bin = folder / "bin"
        bin.mkdir()
        write_program(bin)
        self._path = f"{bin}:{os.environ['PATH']}"
        self._variables: list[str] = []

    def run(self, command: str) -> str:
        if re.match(r"[A-Z]+=\S", command):
            self._variables.append(command)
        command = "\n".join([*self._variables, command])
        command = command.replace("http://127.0.0.1:8080", self.served.http)
        command = command.replace("nats://127.0.0.1:4222", self.served.nats)
        ran = subprocess.run(
            ["bash", "-eu", "-c", command],
            cwd=self.folder,
            env=environment(PATH=self._path),
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        return ran.stdout

    @contextmanager
    def background(self, command: str) -> Iterator[None]:
        """Run a command that does not end, from its first line of output until the block ends."""
        process = subprocess.Popen(
            [
                "bash",
                "-c",
                command.replace("keyhouse ", f"exec {sys.executable} -m keyhouse.cli ", 1),
            ],
            cwd=self.folder,
            env=environment(PATH=self._path),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None and process.stdout.readline()
            yield
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def code(self) -> str:
        found = re.findall(r"Code for Ada: (\w{8})", self.served.log_path.read_text())
        return str(found[-1])


@contextmanager
def service(folder: Path, cms: MediaCmsServer) -> Iterator[Terminal]:
    settings = {
        "KEYHOUSE_PLAYLIST_DELIVERY": "console",
        "KEYHOUSE_PLAYLIST_MEDIACMS_URL": cms.url,
        "KEYHOUSE_PLAYLIST_MEDIACMS_TOKEN": "secret",
    }
    with serving(folder, "playlist", data="keyhouse-data", **settings) as served:
        yield Terminal(folder, served)


def test_the_walk_through_pushes_a_playlist(tmp_path: Path) -> None:
    lines = [line for line in commands(TOUR) if not line.startswith("pip ")]
    assert "serve playlist" in lines[0]
    with mediacms(0) as cms, service(tmp_path, cms) as terminal:
        [admin] = [line for line in lines if "admin add" in line]
        [demo] = [line for line in lines if "playlist demo" in line]
        assert "Ada" in terminal.run(admin)
        with terminal.background(demo):
            answers = walk(terminal, commands("The same over HTTP"))
    assert answers["otp/request"] == {"status": "sent", "expires_in_seconds": 300}
    assert answers["otp/verify"] == {"status": "ok", "role": "admin"}
    assert answers["search"]["total"] >= 1 and answers["search"]["facets"]["category"]
    assert (answers["apply"]["status"], answers["apply"]["enqueued_count"]) == ("ok", 1)
    assert "film1" in {each["video_id"] for each in answers["queue"]["items"]}
    assert answers["current"]["status"] == "ok"


def answer_without_error(terminal: Terminal, line: str) -> Any:
    answer = json.loads(terminal.run(line))
    return None if "error" in answer else answer


def walk(terminal: Terminal, lines: list[str]) -> dict[str, Any]:
    """Run the lines with curl, with the code and the id that they got; return the answers."""
    answers: dict[str, Any] = {}
    made = ""
    for line in lines:
        line = line.replace("CODE", terminal.code() if "CODE" in line else "").replace("ID", made)
        if not line.startswith("curl"):
            terminal.run(line)
            continue
        answer = json.loads(terminal.run(line))
        if "likes/current" in line and "error" in answer:  # when the robot has started the item
            answer = wait_until(partial(answer_without_error, terminal, line))
        made = answer.get("playlist_id", made)
        names = ("otp/request", "otp/verify", "search", "apply", "current", "queue")
        for name in names:
            if re.search(rf"{name}(\?|\"|$)", line):
                answers[name] = answer
    return answers


def test_the_catalog_is_refreshed_as_the_guide_says(tmp_path: Path) -> None:
    items = [{"video_id": "a", "title": "A", "manifest_url": "https://m/a"}]
    (tmp_path / "catalog.json").write_text(json.dumps(items))
    with mediacms(120) as cms, service(tmp_path, cms) as terminal:
        terminal.run("keyhouse playlist admin add Ada")
        cms.fails, cms.cut = {2: 2}, {3: 1}
        setting = (
            f"KEYHOUSE_PLAYLIST_MEDIACMS_URL={cms.url} KEYHOUSE_PLAYLIST_MEDIACMS_TOKEN=secret"
        )
        printed = [terminal.run(f"{setting} {line}") for line in commands("Catalog")]
        assert [line.split()[0] for line in printed] == ["1", "120", "120"]
        assert cms.tokens == {"Token secret"}
        snapshots = [line.split()[-1] for line in printed]
        assert len(set(snapshots)) == 3


@pytest.mark.extra  # five attempts take eight seconds; in one process: test_playlist_mediacms
def test_a_refresh_that_fails_leaves_the_catalog(tmp_path: Path) -> None:
    with mediacms(120) as cms, service(tmp_path, cms) as terminal:
        terminal.run(
            f"KEYHOUSE_PLAYLIST_MEDIACMS_URL={cms.url} KEYHOUSE_PLAYLIST_MEDIACMS_TOKEN=secret"
            " keyhouse playlist refresh"
        )
        cms.fails = {2: 1_000}
        refused = subprocess.run(
            [
                sys.executable,
                "-m",
                "keyhouse.cli",
                "playlist",
                "refresh",
                "--store",
                "keyhouse-data",
            ],
            cwd=tmp_path,
            env=environment(
                KEYHOUSE_PLAYLIST_MEDIACMS_URL=cms.url, KEYHOUSE_PLAYLIST_MEDIACMS_TOKEN="secret"
            ),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert refused.returncode == 1 and "503" in refused.stderr
        names = [path.name for path in (tmp_path / "keyhouse-data").glob("catalog*")]
        assert names == ["catalog.sqlite3"]


def test_the_python_of_the_guide_pushes_a_playlist(tmp_path: Path) -> None:
    [text] = re.findall(r"^```python\n(.*?)^```", section("From Python"), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(text, names)
    with mediacms(0) as cms, service(tmp_path, cms) as terminal:
        terminal.run("keyhouse playlist admin add Ada")
        with terminal.background("keyhouse playlist demo"):
            url = f"{terminal.served.http}/playlist"
            api = f"{url}/api/v1"
            httpx.post(f"{api}/auth/otp/request", json={"username": "Ada"}, timeout=60)
            body = {"username": "Ada", "otp": terminal.code()}
            verified = httpx.post(f"{api}/auth/otp/verify", json=body, timeout=60)
            token = verified.cookies["kryten_playlist_session"]
            assert names["push_all"](url, token, "harbour") >= 1


def test_the_demonstration_is_for_the_settings_and_ends_with_its_service(tmp_path: Path) -> None:
    """It filled the namespace `default`, and ended with tracebacks of the NATS client."""
    (tmp_path / "keyhouse.toml").write_text('[playlist]\nnamespace = "tv"\nchannel = "attic"\n')
    with mediacms(0) as cms, service(tmp_path, cms) as terminal:
        demo = subprocess.Popen(
            [sys.executable, "-m", "keyhouse.cli", "playlist", "demo", "--store", "keyhouse-data"],
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert demo.stdout is not None and "robot of attic" in demo.stdout.readline()
        space = "--space kryten_playlist_playlists"
        listed = terminal.run(f"keyhouse list playlist {space}")
        assert "ns/tv/playlists/demo-1" in listed and "ns/default" not in listed
    _, errors = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert errors.startswith("keyhouse: The NATS server has stopped") and errors.count("\n") == 1
