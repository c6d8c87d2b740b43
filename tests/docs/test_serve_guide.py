"""The guide to serving a schema: its commands are run as printed, against a real service."""

import re
import subprocess
from pathlib import Path

from tests.serve.support.serve_process import environment, serving
from tests.support.program import write_program

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "serve-your-schema.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def test_the_walk_through_prints_what_the_guide_says(tmp_path: Path) -> None:
    blocks = [(match[1], match[2]) for match in BLOCK.finditer(GUIDE.read_text())]
    [module] = [text for language, text in blocks if language == "python"]
    (tmp_path / "recipes.py").write_text(module)
    shell = [text for language, text in blocks if language == "sh"]
    settings = shell[1]
    with serving(tmp_path, "recipes:BOX", "--nats", "off", data="keyhouse-data") as process:
        program = write_program(tmp_path / "bin")
        for at, (language, text) in enumerate(blocks):
            if language != "text":
                continue
            script = settings.replace("http://127.0.0.1:8080", process.http) + blocks[at - 1][1]
            done = subprocess.run(
                ["bash", "-c", f'PATH="{program.parent}:$PATH"\n{script}'],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=60,
            )
            assert done.stdout.splitlines() == text.splitlines(), done.stderr
