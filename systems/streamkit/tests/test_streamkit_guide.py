"""The guide's walk through is done, command by command, against the program; what it shows is what
is printed."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from keyhouse.service.spec import ServiceContext
from keyhouse_streamkit.client import Streamkit
from keyhouse_streamkit.schema import Note
from tests.serve.support.serve_process import serving
from tests.support.program import write_program

GUIDE = Path(__file__).parents[1] / "README.md"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
MARK = "=== the next block ==="


def section(title: str) -> str:
    return GUIDE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def tour() -> list[tuple[str, str]]:
    """Each block of commands, with the output that the guide shows behind it."""
    found = re.findall(r"^```(\w+)\n(.*?)^```", section("Tour"), re.MULTILINE | re.DOTALL)
    assert found[0][0] == "text" and found[0][1].startswith("$ keyhouse serve streamkit")
    steps: list[tuple[str, str]] = []
    for language, text in found[1:]:
        if language == "sh":
            steps.append((text, ""))
        else:
            steps[-1] = (steps[-1][0], text)
    return steps


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here")
def test_the_walk_through_prints_what_it_shows(tmp_path: Path) -> None:
    bin = tmp_path / "bin"
    bin.mkdir()
    write_program(bin)
    with serving(tmp_path, "streamkit", "--http", "127.0.0.1:0") as served:
        data = next(tmp_path.rglob("streamkit*.db")).parent
        script = f"\necho; echo '{MARK}'\n".join(text for text, _ in tour())
        ran = subprocess.run(
            ["bash", "-eu", "-c", script.replace("http://127.0.0.1:8080", served.http)],
            cwd=tmp_path,
            env=os.environ | {"PATH": f"{bin}:{os.environ['PATH']}", "KEYHOUSE_DATA": str(data)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        shown = [TIME.sub("TIME", expected).strip() for _, expected in tour()]
        printed = [
            TIME.sub("TIME", part).replace("}{", "}\n{").strip() for part in ran.stdout.split(MARK)
        ]
        assert printed == shown

        token = subprocess.run(
            [bin / "keyhouse", "token", "streamkit", "--customer", "12345"],
            env=os.environ | {"KEYHOUSE_DATA": str(data)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        python = re.search(
            r"^```python\n(.*?)^```", section("From Python"), re.MULTILINE | re.DOTALL
        )
        assert python is not None
        names: dict[str, object] = {}
        exec(python[1], names)
        names["append"](f"{served.http}/streamkit", token, "2. Chat")  # type: ignore[operator]  # the guide's function
        with Streamkit(f"{served.http}/streamkit", token=token) as panel:
            assert panel.get(Note, "ideas").value.content == "1. Giveaway\n2. Chat"


def test_every_setting_of_streamkit_is_in_the_guide() -> None:
    from keyhouse.auth import JwtSettings
    from keyhouse_streamkit.settings import StreamkitSettings

    own = set(StreamkitSettings.__struct_fields__) - set(JwtSettings.__struct_fields__)
    assert own == set(re.findall(r"^\| `(\w+)` \|", section("Limits of a customer"), re.MULTILINE))


def test_every_route_of_streamkit_is_in_the_guide(tmp_path: Path) -> None:
    from keyhouse.engines.memory import MemoryEngine
    from keyhouse_streamkit import SYSTEM

    documented = set(re.findall(r"^\| `(\w+ /[^?`]*)", section("Endpoints"), re.MULTILINE))
    context = ServiceContext(
        engine=MemoryEngine(), data=tmp_path, metrics=CollectorRegistry(), settings={}
    )
    assert documented == {
        f"{route.method} {route.path}" for route in SYSTEM.service(context).routes
    }
