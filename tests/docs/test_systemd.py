"""The systemd unit of the page on serving: its command runs, with its folders in place."""

import shlex
from configparser import ConfigParser
from pathlib import Path

from tests.docs.pages import DOCS, ROOT, blocks
from tests.serve.support.serve_process import serving
from tests.support.program import run

PAGE = (DOCS / "serving.md").read_text()
EXAMPLE = ROOT / "examples" / "song_requests"


def unit() -> ConfigParser:
    [text] = blocks(PAGE, "ini")
    parser = ConfigParser(interpolation=None, strict=True)  # a line twice is an error
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keeps capitals
    parser.read_string(text)
    return parser


def test_the_unit_serves_a_schema_of_ones_own(tmp_path: Path) -> None:
    service = unit()["Service"]
    program, command, *arguments = shlex.split(service["ExecStart"])
    assert (Path(program).name, command) == ("keyhouse", "serve")
    assert service["Environment"] == f"KEYHOUSE_DATA=/var/lib/{service['StateDirectory']}"
    folder, data = tmp_path / "opt", tmp_path / "state"
    (folder / "overlay").mkdir(parents=True)
    (folder / "songs.py").write_text((EXAMPLE / "songs.py").read_text())
    for page in (EXAMPLE / "overlay").iterdir():
        (folder / "overlay" / page.name).write_text(page.read_text())
    before = sorted(folder.rglob("*"))
    with serving(folder, *arguments, data=str(data)) as running:
        assert running.get("/pages/").status_code == 200
        assert running.get("/songs/schema").status_code == 401
        [printing] = [text for text in blocks(PAGE, "sh") if "keyhouse token" in text]
        _, line = printing.replace("\\\n", "").splitlines()
        made = run(*shlex.split(line.replace("/var/lib/songs", str(data)))[1:], cwd=folder)
        assert made.stdout.startswith("ey")
        assert running.end() == 0
    written = {each.name for each in folder.rglob("*") if each not in before}
    assert written <= {"log", "__pycache__"} | {each.name for each in folder.rglob("*.pyc")}, (
        "it writes to its data folder alone"
    )


def test_the_unit_takes_every_right_that_the_service_does_not_need() -> None:
    service = unit()["Service"]
    for name in ("DynamicUser", "ProtectHome", "PrivateTmp", "PrivateDevices", "NoNewPrivileges"):
        assert service[name] == "yes"
    assert service["ProtectSystem"] == "strict"
    assert service["StateDirectoryMode"] == "0700"
    assert float(service["TimeoutStopSec"]) > 10
    assert {*unit()} == {"DEFAULT", "Unit", "Service", "Install"}
