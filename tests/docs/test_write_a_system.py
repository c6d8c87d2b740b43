"""The guide to a system of one's own: its package is installed outside the repository, and
served."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx

from tests.docs.pages import DOCS, ROOT, blocks
from tests.serve.support.serve_process import command, environment, serving
from tests.support.program import SOURCE, run

EXAMPLE = ROOT / "examples" / "polls"
PAGE = (DOCS / "guides" / "write-a-system.md").read_text()


def test_the_guide_shows_the_example() -> None:
    package = EXAMPLE / "src" / "polls"
    files = ["__init__.py", "schema.py", "operations.py", "service.py"]
    assert blocks(PAGE, "python") == [(package / name).read_text() for name in files]
    assert blocks(PAGE, "toml") == [(EXAMPLE / "pyproject.toml").read_text()]
    assert sorted(path.name for path in package.glob("*.py")) == sorted(files)
    assert sum(len(text.splitlines()) for text in blocks(PAGE, "python")) < 150


def test_an_installed_system_is_listed_described_and_served(tmp_path: Path) -> None:
    """A sixth system needed a line in the library's registry."""
    shutil.copytree(EXAMPLE, tmp_path / "polls")
    site = tmp_path / "site"
    options = ("--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", site, tmp_path / "polls"],
        check=True,
    )
    variables = environment(PYTHONPATH=os.pathsep.join([str(site), str(SOURCE)]))

    def output(*arguments: str) -> str:
        words = [sys.executable, "-m", "keyhouse.cli", *arguments]
        return subprocess.check_output(words, env=variables, cwd=tmp_path, text=True)

    assert "vote:{poll:ulid}:{viewer}" in output("describe", "polls")
    served = ("polls", "--nats", "off", "--http", "127.0.0.1:0", "--json")
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            command(*served),
            env=variables,
            cwd=tmp_path,
            text=True,
            stdout=subprocess.PIPE,
            stderr=log,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (tmp_path / "log").read_text()
            check(json.loads(line)["http"], output("token", "polls", "--space", "channel-7"))
        finally:
            process.kill()


def test_a_system_that_is_not_installed_is_served_by_its_declaration(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE / "src", tmp_path, dirs_exist_ok=True)
    with serving(tmp_path, "polls:SYSTEM", "--nats", "off") as running:
        token = run("token", "polls:SYSTEM", "--space", "c", "--data", "data", cwd=tmp_path)
        check(running.http, token.stdout)


def check(url: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token.strip()}"}
    with httpx.Client(base_url=f"{url}/polls", headers=headers) as client:
        asked = client.post("/polls", json={"question": "Which?", "options": ["Dust", "Mirage"]})
        poll = asked.raise_for_status().json()["id"]
        for viewer, option in (("ann", 0), ("bob", 1), ("ann", 1)):
            body = {"viewer": viewer, "option": option}
            client.post(f"/polls/{poll}/votes", json=body).raise_for_status()
        assert client.get(f"/polls/{poll}").json() == {"Dust": 0, "Mirage": 2}
        assert client.post(f"/polls/{poll}/votes", json=body | {"option": 7}).status_code == 404
    assert "polls_vote_total 3.0" in httpx.get(f"{url}/metrics").text
